#pragma once
// Reductions, scans and sorting.
// Conventions: coshard/dtensor/ops/ops.h. A dimension that is not worked over may be cut any way:
// it stays cut and nothing moves. "Gathered" means one all_gather, or one all_to_all that cuts
// another dimension instead, whichever is cheaper; the result is cut accordingly.
#include <optional>

#include <coshard/dtensor/dims.h>
#include <coshard/dtensor/tensor.h>

namespace coshard {

struct ValuesAndIndices {
  Tensor values, indices;  // indices i64, positions in the logical tensor
};

// --- reductions ---
// keepdim leaves a dimension of size 1 for each that was reduced. Over a cut dimension the result
// is a Partial and nothing moves, where no other layout is named.

// Integers and booleans are summed as i64. Partial(sum); a Partial(sum|avg) input stays one.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           CallSite site = CallSite::current());
// Floating dtypes. As sum, divided by the logical number of elements.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            CallSite site = CallSite::current());
// NaN counts as 0. Partial(sum).
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
              CallSite site = CallSite::current());
// How many elements are not 0, i64; not differentiable. Partial(sum).
Tensor count_nonzero(const Tensor& x, const Dims& dims = {}, CallSite site = CallSite::current());
// Any dtype; NaN wins. The gradient is shared evenly among equals. Partial(max), Partial(min), and
// such an input stays one. Gradient: a cut dimension that was reduced is gathered. Error{BadInput}
// over 0 elements.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            CallSite site = CallSite::current());
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            CallSite site = CallSite::current());
inline Tensor max(const Tensor& x, CallSite site = CallSite::current()) {
  return amax(x, {}, false, site);
}
inline Tensor min(const Tensor& x, CallSite site = CallSite::current()) {
  return amin(x, {}, false, site);
}
// Integers and booleans are multiplied as i64. Partial(product). The gradient is right with zeros;
// it gathers a cut dimension that was reduced.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            CallSite site = CallSite::current());
// bool: whether every, or any, element is not 0. Not differentiable. Partial(min), Partial(max).
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           CallSite site = CallSite::current());
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           CallSite site = CallSite::current());
// Divided by max(0, n - correction). Floating dtypes. A cut dimension is gathered first. The
// gradient of stdev (torch.std) is 0 where it is 0.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false,
           CallSite site = CallSite::current());
Tensor stdev(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false,
             CallSite site = CallSite::current());
// (sum of |x|^ord)^(1/ord); ord 0 counts what is not 0, inf and -inf are the extremes of |x|. Over
// a cut dimension: Partial(sum) for 0 and 1, Partial(max|min) for inf and -inf, otherwise one
// all_reduce of the sums. The gradient is 0 where the norm is 0.
Tensor vector_norm(const Tensor& x, double ord = 2, const Dims& dims = {}, bool keepdim = false,
                   CallSite site = CallSite::current());
// log(sum(exp(x))), of integers in f32. A cut dimension is gathered first.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false,
                 CallSite site = CallSite::current());

// --- where the extreme is --- Along one cut dimension a value and an index per rank travel (one
// all_gather, or one all_to_all that cuts the rest), and the gradient comes in x's layout; several
// are gathered first where they are cut.

// Without dim: the position in the flattened tensor. The first among equals; NaN wins. i64.
Tensor argmax(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false,
              CallSite site = CallSite::current());
Tensor argmin(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false,
              CallSite site = CallSite::current());
// The gradient of the values goes to the element that was chosen.
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim = false,
                     CallSite site = CallSite::current());
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim = false,
                     CallSite site = CallSite::current());

// --- scans --- Along one dimension, which is gathered first (one all_gather) where it is cut.

// Integers and booleans as i64. A Partial(sum|avg) stays one.
Tensor cumsum(const Tensor& x, int dim, CallSite site = CallSite::current());
// Integers and booleans as i64. The gradient is right with zeros.
Tensor cumprod(const Tensor& x, int dim, CallSite site = CallSite::current());
Tensor logcumsumexp(const Tensor& x, int dim, CallSite site = CallSite::current());
// The last among equals; NaN stays. The gradient goes to the elements that were chosen.
ValuesAndIndices cummax(const Tensor& x, int dim, CallSite site = CallSite::current());
ValuesAndIndices cummin(const Tensor& x, int dim, CallSite site = CallSite::current());

// --- sorting --- Along one dimension, which is gathered first (one all_gather) where it is cut.
// Stable; NaN is greater than every number. The gradient goes where the values came from.

ValuesAndIndices sort(const Tensor& x, int dim = -1, bool descending = false,
                      CallSite site = CallSite::current());
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false,
               CallSite site = CallSite::current());
// The k largest (smallest) in order. Error{BadInput} for k outside [0, size].
ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true,
                      CallSite site = CallSite::current());
// The k-th smallest, counted from 1. Error{BadInput} for k outside [1, size].
ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, int dim = -1, bool keepdim = false,
                          CallSite site = CallSite::current());

}  // namespace coshard
