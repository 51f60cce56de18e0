#pragma once
// Layers of neural networks: softmax, norms, embedding, attention, losses.
// Conventions: dtensor/ops/ops.h.
#include <optional>

#include "dtensor/tensor.h"

namespace coshard {

Tensor softmax(const Tensor& x, int dim);
Tensor log_softmax(const Tensor& x, int dim);
// Over the last dimension. weight, bias [dim] may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);

// ids i64|i32 [...] -> weight[ids] [..., dim]. weight S(0): Partial(sum), each rank its own rows;
// weight S(1): S(-1).
Tensor embedding(const Tensor& ids, const Tensor& weight, std::int64_t padding_idx = -1);
// x [batch, seq, heads, dim], position of row s = first_position + s, rotate-half form.
Tensor rotary_embedding(const Tensor& x, double theta = 10000, std::int64_t first_position = 0);
// q [b,h,tq,d], k, v [b,hkv,tk,d] -> [b,h,tq,d]; scale defaults to 1/sqrt(d). No tq x tk matrix is
// kept.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true,
                 std::optional<double> scale = std::nullopt);
enum class Reduction : std::uint8_t { None, Mean, Sum };
// logits [rows, classes] (or [..., classes]: leading dims are rows), target i64 [rows]. classes
// cut: gathered first; use loss_parallel_cross_entropy to avoid that. mean: over targets !=
// ignore_index.
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100,
                     double label_smoothing = 0);
// (x - target)^2, averaged, summed or as it is; the layouts are those of sub, square, mean and sum.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean);

}  // namespace coshard
