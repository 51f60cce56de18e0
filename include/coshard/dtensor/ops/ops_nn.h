#pragma once
// Layers of neural networks: softmax, norms, embedding, attention, losses.
// Conventions: coshard/dtensor/ops/ops.h.
#include <optional>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// Over any dimension, which is gathered first where it is cut (one all_gather, or one
// all_to_all that cuts another dimension instead); all others stay cut.
Tensor softmax(const Tensor& x, int dim, CallSite site = CallSite::current());
Tensor log_softmax(const Tensor& x, int dim, CallSite site = CallSite::current());
// x is cast first.
inline Tensor softmax(const Tensor& x, int dim, DType dtype, CallSite site = CallSite::current()) {
  return softmax(x.to(dtype, site), dim, site);
}
inline Tensor log_softmax(const Tensor& x, int dim, DType dtype,
                          CallSite site = CallSite::current()) {
  return log_softmax(x.to(dtype, site), dim, site);
}
// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, or over the last ones,
// whose sizes are `normalized_shape`; they are gathered first where they are cut (as in softmax),
// all others stay cut. weight and bias have that shape and may be undefined; their gradients are
// Partial(sum) where another dimension is cut. rms_norm: x / sqrt(mean of x^2 + eps) * weight.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, CallSite site = CallSite::current());
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5, CallSite site = CallSite::current());
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6,
                CallSite site = CallSite::current());
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                double eps = 1e-6, CallSite site = CallSite::current());

// ids i64|i32 [...] -> weight[ids] [..., dim]. weight S(0): Partial(sum), each rank its own rows;
// weight S(1): S(-1). The row padding_idx, counted from the end where it is negative, gets no
// gradient; Error{BadInput} for one that is not there.
Tensor embedding(const Tensor& ids, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = std::nullopt,
                 CallSite site = CallSite::current());
// x [batch, seq, heads, dim], position of row s = first_position + s, rotate-half form.
Tensor rotary_embedding(const Tensor& x, double theta = 10000, std::int64_t first_position = 0,
                        CallSite site = CallSite::current());
// A probability, given as a number that is no bool: is_causal does not get into its place.
struct Probability {
  template <Number T>
  requires(!std::same_as<T, bool>) constexpr Probability(T number)  // NOLINT: implicit
      : value(static_cast<double>(number)) {}
  double value;
};
// softmax(scale q k^T + mask) v: q [b,h,tq,d], k [b,hkv,tk,d], v [b,hkv,tk,dv] -> [b,h,tq,dv]
// (torch's function), all of them also without b, or without b and h. is_causal: query i sees keys
// j <= i. mask, of a shape that broadcasts to [b,h,tq,tk]: bool keeps where true, a float (q's
// dtype, differentiable) is added; not together with is_causal. A query that sees no key gives 0.
// scale defaults to 1/sqrt(d). enable_gqa: h is a multiple of hkv, query head i reads key head i /
// (h/hkv). No tq x tk matrix is kept, but the gradient of a mask is one. 0 collectives where batch,
// heads (whole groups) or tq are cut; k and v cut along tk, and q, k, v along d, are gathered.
// Cutting tq leaves the gradients of k and v Partial. dropout_p > 0 drops attention weights
// (dropout), and the tq x tk matrix is kept; k and v are then used as matmul and softmax do.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask = {}, Probability dropout_p = 0.0,
                                    bool is_causal = false,
                                    std::optional<double> scale = std::nullopt,
                                    bool enable_gqa = false, CallSite site = CallSite::current());
// The same with grouped heads, and a causal mask aligned with the last key: query i sees keys
// j <= i + (tk - tq), as the newest queries of a longer sequence do.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true,
                 std::optional<double> scale = std::nullopt, CallSite site = CallSite::current());
enum class Reduction : std::uint8_t { None, Mean, Sum };
// Classes are dimension 1 (0 of a 1-D tensor): logits [classes], [n, classes] or [n, classes, d1,
// ...] and target i64 [], [n] or [n, d1, ...]. weight [classes] may be undefined. mean divides by
// the sum of the weights of the targets that are not ignore_index. Classes that are cut are
// gathered first; loss_parallel_cross_entropy avoids that. A floating target of the logits' shape
// holds the probability of each class: its loss is -sum(target * log_softmax(logits) * weight),
// mean divides by the number of rows, and it may have a gradient too. Cut rows: nothing moves for
// none and sum, which is a Partial(sum); mean sums its divisor (one all_reduce of one number). Of
// class numbers only the logits get a gradient. Error{BadInput} on the rank that has it: a target
// that is no class.
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100,
                     double label_smoothing = 0, const Tensor& weight = {},
                     CallSite site = CallSite::current());
// The same of log-probabilities.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target,
                Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100,
                const Tensor& weight = {}, CallSite site = CallSite::current());
// cross_entropy with the classes last: logits [..., classes], target [...]. No log-probabilities
// are stored.
Tensor cross_entropy_rows(const Tensor& logits, const Tensor& target,
                          Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100,
                          double label_smoothing = 0, CallSite site = CallSite::current());
// (x - target)^2, averaged, summed or as it is; the layouts are those of sub, square, mean and sum.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean,
                CallSite site = CallSite::current());

}  // namespace coshard
