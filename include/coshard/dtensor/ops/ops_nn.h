#pragma once
// Neural-network layers: softmax, norms, embedding, attention, losses. Conventions:
// coshard/dtensor/ops/ops.h.
#include <optional>

#include <coshard/dtensor/ops/rotary_table.h>
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// Along any dimension. If that is sharded it is gathered first (one all_gather, or one all_to_all
// that shards another dimension instead); other shards stay.
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
// whose sizes are `normalized_shape`. Those are gathered first if sharded (as in softmax); other
// shards stay. weight and bias have that shape or are undefined; their gradients are Partial(sum)
// if another dimension is sharded. rms_norm: x / sqrt(mean of x^2 + eps) * weight.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5, CallSite site = CallSite::current());
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps = 1e-5, CallSite site = CallSite::current());
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6,
                CallSite site = CallSite::current());
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                double eps = 1e-6, CallSite site = CallSite::current());

// ids i64|i32 [...] -> weight[ids] [..., dim]. weight S(0): Partial(sum), each rank looks up its
// own rows; weight S(1): S(-1). The row padding_idx (negative: from the end) gets no gradient;
// Error{BadInput} if out of bounds.
Tensor embedding(const Tensor& ids, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = std::nullopt,
                 CallSite site = CallSite::current());
// x [batch, seq, heads, dim]; row s has position first_position + s; rotate-half form.
Tensor rotary_embedding(const Tensor& x, double theta = 10000, std::int64_t first_position = 0,
                        CallSite site = CallSite::current());
// The same with frequencies as data (llama3, yarn, …). Error{BadInput}: not dim / 2 of them.
Tensor rotary_embedding(const Tensor& x, const RotaryTable& table, std::int64_t first_position = 0,
                        CallSite site = CallSite::current());
// The same where row s of batch b has positions[b, s], i64 [batch, seq]: prompts of several lengths,
// or documents that share a row. Plain positions are the same on all ranks of x's mesh.
Tensor rotary_embedding(const Tensor& x, double theta, const Tensor& positions,
                        CallSite site = CallSite::current());
Tensor rotary_embedding(const Tensor& x, const RotaryTable& table, const Tensor& positions,
                        CallSite site = CallSite::current());
// A probability: any number but not a bool, so that is_causal cannot be passed for it.
struct Probability {
  template <Number T>
  requires(!std::same_as<T, bool>) constexpr Probability(T number)  // NOLINT: implicit
      : value(static_cast<double>(number)) {}
  double value;
};
// softmax(scale q k^T + mask) v: q [b,h,tq,d], k [b,hkv,tk,d], v [b,hkv,tk,dv] -> [b,h,tq,dv]
// (torch's function); also without b, or without b and h.
//   is_causal:   query i sees keys j <= i. Not together with a mask.
//   mask:        broadcasts to [b,h,tq,tk]; a bool mask keeps where true, a float mask (q's dtype,
//                differentiable) is added. A query that sees no key gives 0.
//   scale:       default 1/sqrt(d).
//   enable_gqa:  h is a multiple of hkv; query head i reads key head i / (h/hkv).
//   dropout_p:   > 0 drops attention weights.
//   Memory:      no tq x tk matrix, except for the gradient of a mask and with dropout, which
//                computes by matmul and softmax.
//   Moves:       nothing if batch, heads (whole groups) or tq are sharded; a sharded tk of k and v,
//                and a sharded d, are gathered. A sharded tq makes the gradients of k and v
//                Partial.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask = {}, Probability dropout_p = 0.0,
                                    bool is_causal = false,
                                    std::optional<double> scale = std::nullopt,
                                    bool enable_gqa = false, CallSite site = CallSite::current());
// The same with grouped heads, and with a causal mask aligned to the last key: query i sees keys j
// <= i + (tk - tq), as for the newest queries of a longer sequence. window > 0: only the last
// `window` of those (the sliding window of Mistral). Error{BadInput}: a window without causal.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal = true,
                 std::optional<double> scale = std::nullopt, std::int64_t window = 0,
                 CallSite site = CallSite::current());
// i64 [batch, tq]: query i of batch b sees the keys first[b, i] <= j <= last[b, i], of those that
// there are; none, and its result is 0, if first > last. Causal masks, windows, padding and
// documents are ranges. Values of keys that a query does not see have the weight 0, as under a mask:
// all have to be finite.
struct KeyRanges {
  Tensor first, last;
};
// attention() of those keys. Plain ranges are the same on all ranks of q's mesh.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyRanges& keys,
                 std::optional<double> scale = std::nullopt, CallSite site = CallSite::current());
enum class Reduction : std::uint8_t { None, Mean, Sum };
// torch.nn.functional.cross_entropy. Classes are dimension 1 (0 of a 1-D tensor): logits [classes],
// [n, classes] or [n, classes, d1, ...] and target i64 [], [n] or [n, d1, ...]; only the logits get
// a gradient. A floating-point target of the logits' shape holds class probabilities: the loss is
// -sum(target * log_softmax(logits) * weight), and it can have a gradient too. weight [classes] may
// be undefined. mean divides by the sum of the weights of targets other than ignore_index; for
// probabilities, by the number of rows.
//   Moves:  sharded classes are gathered first; loss_parallel_cross_entropy avoids that. With
//           sharded rows, none and sum move nothing (sum gives a Partial(sum)); mean all-reduces
//           its divisor, a single number.
//   Fails:  Error{BadInput} for a target out of bounds, on the rank that holds it.
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100,
                     double label_smoothing = 0, const Tensor& weight = {},
                     CallSite site = CallSite::current());
// The same for log-probabilities.
Tensor nll_loss(const Tensor& log_probs, const Tensor& target,
                Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100,
                const Tensor& weight = {}, CallSite site = CallSite::current());
// cross_entropy with the classes last: logits [..., classes], target [...]. Stores no
// log-probabilities.
Tensor cross_entropy_rows(const Tensor& logits, const Tensor& target,
                          Reduction reduction = Reduction::Mean, std::int64_t ignore_index = -100,
                          double label_smoothing = 0, CallSite site = CallSite::current());
// (x - target)^2: mean, sum or none. Layouts as for sub, square, mean and sum.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::Mean,
                CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
