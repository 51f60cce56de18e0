#pragma once
// The operators, as functions on Tensors and DTensors alike. Each is differentiable unless it says
// otherwise, keeps the dtype of its first floating input, and issues collectives only where the
// layouts leave it no strategy without (see op.h). Shapes are those of PyTorch's functions of the
// same name. Errors: Error{BadInput} "<op>: …" naming shapes and layouts.
#include <optional>
#include <span>
#include <vector>

#include "dtensor/tensor.h"

namespace coshard {

// a[..., m, k] @ b[k, n], or with equal leading dims a[..., m, k] @ b[..., k, n]. 0 collectives for
// (S(m), R), (R, S(n)), (S(k), S(k)) -> Partial, and a cut leading dim.
Tensor matmul(const Tensor& a, const Tensor& b);
// x[..., in] @ weight[out, in]^T + bias[out] (optional). The gradient of a leaf weight is deferred
// under the next collective.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// into += or = a @ b, off the tape, on plain tensors (rows of a result as shards arrive).
void matmul_into(const Tensor& into, const Tensor& a, const Tensor& b, bool accumulate = false);

// Broadcasting. alpha scales b. Partial + Partial stays Partial; Partial + Replicate stays Partial
// (the replica is split).
Tensor add(const Tensor& a, const Tensor& b, double alpha = 1);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double scalar);  // a Partial is reduced first
Tensor mul(const Tensor& a, double scalar);  // a Partial(sum|avg) stays
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, double scalar) { return mul(a, scalar); }

Tensor neg(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x, bool tanh_approximation = false);
// silu(a) * b in one pass
Tensor swiglu(const Tensor& a, const Tensor& b);

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

// All dims when dim is absent. sum over a cut dim is Partial(sum).
Tensor sum(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false);
Tensor mean(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false);
// Along the last-but-`inner` dim; a cut dim gives Partial(max). Not differentiable.
Tensor amax(const Tensor& x, int dim, bool keepdim = false);

// One size may be -1. A view where strides allow it, otherwise a copy. A shard moves with its dim;
// a cut that the new shape cannot express is gathered first.
Tensor view(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int dim0, int dim1);
Tensor permute(const Tensor& x, const Shape& dims);
// [start, end) along dim; a cut dim is gathered first. Negative indices count from the end.
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end);
Tensor cat(std::span<const Tensor> parts, int dim);
inline Tensor cat(const std::vector<Tensor>& parts, int dim) {
  return cat(std::span<const Tensor>(parts), dim);
}
// Pieces of `size` along dim, the last one smaller (torch.split).
std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim);
Tensor expand(const Tensor& x, const Shape& shape);
Tensor contiguous(const Tensor& x);
Tensor to(const Tensor& x, DType dtype);
// Zeroes elements with probability p, scales the rest by 1/(1-p). Draws by the global element index
// from the world's generator (random.h), so any layout drops what one device would. A Partial input
// is reduced first. p = 0: x itself.
Tensor dropout(const Tensor& x, double p, bool training = true);

}  // namespace coshard
