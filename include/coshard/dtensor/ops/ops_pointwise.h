#pragma once
// Elementwise operators: arithmetic, comparisons, activations, casts, in-place forms. Conventions:
// coshard/dtensor/ops/ops.h. Inputs broadcast, and mixed dtypes are promoted as in PyTorch
// (promotion.h); functions without integer results give f32 for integers. Shards pass through
// without a collective; a replica beside a shard is sliced. A Partial passes through where stated
// and is reduced first otherwise; several Partial inputs must all have the same reduction, or all
// but one are reduced.
#include <optional>

#include <coshard/dtensor/tensor/promotion.h>

#pragma GCC visibility push(default)
namespace coshard {

// --- arithmetic ---

// a + alpha * b. Two Partial(sum), or two Partial(avg), stay Partial. Beside a Replicate, sum (the
// replica is split), avg, max and min stay (max and min of b swap if alpha < 0). Error{BadInput}
// for a fractional alpha with integers.
Tensor add(const Tensor& a, const Tensor& b, double alpha = 1, CallSite site = CallSite::current());
Tensor sub(const Tensor& a, const Tensor& b, double alpha = 1,
           CallSite site = CallSite::current());  // not for two bool tensors
// a + alpha * scalar: avg, max and min stay Partial; a sum is reduced first.
Tensor add(const Tensor& a, const Scalar& scalar, double alpha = 1,
           CallSite site = CallSite::current());
Tensor sub(const Tensor& a, const Scalar& scalar, double alpha = 1,
           CallSite site = CallSite::current());
Tensor rsub(const Tensor& a, const Scalar& scalar,
            CallSite site = CallSite::current());  // scalar - a, as add(neg(a), scalar)
// Partial(sum|avg) * Replicate stays Partial; so does Partial(product) * Partial(product).
Tensor mul(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// Every Partial except product stays; max and min swap if the scalar is negative.
Tensor mul(const Tensor& a, const Scalar& scalar, CallSite site = CallSite::current());
// True division: integers give f32. Partial(sum|avg) / Replicate stays Partial.
Tensor div(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor div(const Tensor& a, const Scalar& scalar, CallSite site = CallSite::current());  // as mul
// Error{BadInput} for integers with a negative exponent.
Tensor pow(const Tensor& a, const Tensor& exponent, CallSite site = CallSite::current());
Tensor pow(const Tensor& a, const Scalar& exponent, CallSite site = CallSite::current());
// With the sign of the divisor. Error{BadInput} for integer division by zero.
Tensor remainder(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor remainder(const Tensor& a, const Scalar& scalar, CallSite site = CallSite::current());
// NaN propagates; equal elements share the gradient. max and min stay Partial beside a Replicate;
// for two Partials, maximum keeps max and minimum keeps min.
Tensor maximum(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor minimum(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor atan2(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
// x + weight * (end - x), and x + value * a * b; layouts as for add and mul.
Tensor lerp(const Tensor& x, const Tensor& end, double weight, CallSite site = CallSite::current());
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1,
               CallSite site = CallSite::current());

// --- functions of one element ---

// Integers stay integers. Every Partial except product passes through neg (max and min swap).
Tensor neg(const Tensor& x, CallSite site = CallSite::current());
Tensor abs(const Tensor& x, CallSite site = CallSite::current());
Tensor square(const Tensor& x, CallSite site = CallSite::current());
// Monotone: Partial(max) and Partial(min) stay. The gradient of sign and floor is 0.
Tensor relu(const Tensor& x, CallSite site = CallSite::current());
Tensor sign(const Tensor& x, CallSite site = CallSite::current());  // 0 for NaN
Tensor floor(const Tensor& x, CallSite site = CallSite::current());
// One bound may be absent, not both; NaN propagates. The gradient passes strictly between the
// bounds.
Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = std::nullopt,
             CallSite site = CallSite::current());
// Floating-point. Monotone on all numbers: Partial(max) and Partial(min) stay.
Tensor exp(const Tensor& x, CallSite site = CallSite::current());
Tensor expm1(const Tensor& x, CallSite site = CallSite::current());
Tensor tanh(const Tensor& x, CallSite site = CallSite::current());
Tensor sigmoid(const Tensor& x, CallSite site = CallSite::current());
Tensor erf(const Tensor& x, CallSite site = CallSite::current());
Tensor softplus(const Tensor& x, CallSite site = CallSite::current());  // x itself above 20
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01,
                  CallSite site = CallSite::current());
// Floating-point. A Partial is reduced first.
Tensor log(const Tensor& x, CallSite site = CallSite::current());
Tensor log1p(const Tensor& x, CallSite site = CallSite::current());
Tensor sqrt(const Tensor& x, CallSite site = CallSite::current());
Tensor rsqrt(const Tensor& x, CallSite site = CallSite::current());
Tensor reciprocal(const Tensor& x, CallSite site = CallSite::current());
Tensor sin(const Tensor& x, CallSite site = CallSite::current());
Tensor cos(const Tensor& x, CallSite site = CallSite::current());
Tensor silu(const Tensor& x, CallSite site = CallSite::current());
Tensor gelu(const Tensor& x, bool tanh_approximation = false, CallSite site = CallSite::current());
// silu(a) * b in one pass
Tensor swiglu(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());

// --- comparisons and logic ---

// All of these: bool results, no gradient; a Partial is reduced first.
Tensor lt(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor le(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor gt(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor ge(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor eq(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor ne(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor lt(const Tensor& a, const Scalar& b, CallSite site = CallSite::current());
Tensor le(const Tensor& a, const Scalar& b, CallSite site = CallSite::current());
Tensor gt(const Tensor& a, const Scalar& b, CallSite site = CallSite::current());
Tensor ge(const Tensor& a, const Scalar& b, CallSite site = CallSite::current());
Tensor eq(const Tensor& a, const Scalar& b, CallSite site = CallSite::current());
Tensor ne(const Tensor& a, const Scalar& b, CallSite site = CallSite::current());
Tensor isnan(const Tensor& x, CallSite site = CallSite::current());
Tensor logical_not(const Tensor& x, CallSite site = CallSite::current());  // nonzero is true
Tensor logical_and(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());
Tensor logical_or(const Tensor& a, const Tensor& b, CallSite site = CallSite::current());

// --- choice ---

// condition is bool. If it is Replicate and x and y are the same Partial, the result is too.
Tensor where(const Tensor& condition, const Tensor& x, const Tensor& y,
             CallSite site = CallSite::current());
// `value`, in x's dtype, where the bool mask is true. avg, max and min stay Partial; sum stays only
// for the value 0 and is reduced first otherwise.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value,
                   CallSite site = CallSite::current());

// --- casts and copies ---

// x itself if it already has the dtype. Gradients flow between floating-point dtypes only;
// Error{BadInput}: x requires a gradient, and the dtype is an 8-bit float.
// Partial(max|min) stays; sum and avg stay only in a wider dtype.
Tensor to(const Tensor& x, DType dtype, CallSite site = CallSite::current());
Tensor clone(const Tensor& x,
             CallSite site = CallSite::current());  // a copy in new memory; any Partial stays
// A constant with x's shape, dtype and shards; Replicate where x is Partial. No gradient.
Tensor full_like(const Tensor& x, const Scalar& value, CallSite site = CallSite::current());
inline Tensor zeros_like(const Tensor& x, CallSite site = CallSite::current()) {
  return full_like(x, 0, site);
}
inline Tensor ones_like(const Tensor& x, CallSite site = CallSite::current()) {
  return full_like(x, 1, site);
}
// For another dtype, and the other *_like functions, see factories.h.
//
// Zeroes elements with probability p and scales the rest by 1/(1-p). Draws by global element index
// from the world's generator (random.h), so every layout drops the same elements. A Partial input
// is reduced first. p = 0 returns x itself.
Tensor dropout(const Tensor& x, double p, bool training = true,
               CallSite site = CallSite::current());

// --- in place ---

// x becomes the result of the function of the same name, and is returned. x keeps its storage,
// dtype and layout; its logical value is what one device would compute (fill_ of a Partial(sum)
// leaves partial values that sum to the value).
//   Moves:  what the function moves, and the redistribute of its result to x's layout.
//   Fails:  Error{BadInput}: x is a leaf that requires a gradient, or a view or other handle that
//           writes.h excludes; the result is larger than x, or its dtype does not fit
//           (floating-point into integers, a number into bool); in backward, if another operator
//           had saved x.
Tensor add_(const Tensor& x, const Tensor& y, double alpha = 1,
            CallSite site = CallSite::current());
Tensor add_(const Tensor& x, const Scalar& scalar, double alpha = 1,
            CallSite site = CallSite::current());
Tensor sub_(const Tensor& x, const Tensor& y, CallSite site = CallSite::current());
Tensor sub_(const Tensor& x, const Scalar& scalar, CallSite site = CallSite::current());
Tensor mul_(const Tensor& x, const Tensor& y, CallSite site = CallSite::current());
Tensor mul_(const Tensor& x, const Scalar& scalar, CallSite site = CallSite::current());
Tensor div_(const Tensor& x, const Tensor& y, CallSite site = CallSite::current());
Tensor div_(const Tensor& x, const Scalar& scalar, CallSite site = CallSite::current());
Tensor relu_(const Tensor& x, CallSite site = CallSite::current());
Tensor neg_(const Tensor& x, CallSite site = CallSite::current());
Tensor exp_(const Tensor& x, CallSite site = CallSite::current());
Tensor clamp_(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max = std::nullopt,
              CallSite site = CallSite::current());
Tensor masked_fill_(const Tensor& x, const Tensor& mask, const Scalar& value,
                    CallSite site = CallSite::current());
Tensor fill_(const Tensor& x, const Scalar& value, CallSite site = CallSite::current());
Tensor zero_(const Tensor& x, CallSite site = CallSite::current());
// y broadcasts to x and is cast to its dtype, whatever that is.
Tensor copy_(const Tensor& x, const Tensor& y, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
