#pragma once
// Reductions, scans and sorting. Conventions: coshard/dtensor/ops/ops.h. Shards of other dimensions
// stay and move nothing. "Gathered" means one all_gather, or one all_to_all that shards another
// dimension instead, whichever is cheaper; the result is then sharded that way.
#include <optional>

#include <coshard/dtensor/tensor/dims.h>
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

struct ValuesAndIndices {
  Tensor values, indices;  // indices are i64, positions in the logical tensor
};

// --- reductions ---

// keepdim keeps each reduced dimension with size 1. Unless stated otherwise, reducing a sharded
// dimension gives a Partial and moves nothing.

// Integers and bool are summed as i64. Partial(sum); a Partial(sum|avg) input keeps its placement.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           CallSite site = CallSite::current());
// Floating-point. As sum, divided by the logical number of elements.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            CallSite site = CallSite::current());
// NaN counts as 0. Partial(sum).
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
              CallSite site = CallSite::current());
// Number of nonzero elements, i64; not differentiable. Partial(sum).
Tensor count_nonzero(const Tensor& x, const Dims& dims = {}, CallSite site = CallSite::current());
// Any dtype; NaN propagates. Equal extremes share the gradient evenly. Partial(max), Partial(min);
// such an input keeps its placement. The gradient gathers a sharded dimension that was reduced.
// Error{BadInput} for an empty dimension.
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
// Integers and bool are multiplied as i64. Partial(product). The gradient is correct for zeros; it
// gathers a sharded dimension that was reduced.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
            CallSite site = CallSite::current());
// bool: whether all, or any, elements are nonzero. Not differentiable. Partial(min), Partial(max).
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           CallSite site = CallSite::current());
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           CallSite site = CallSite::current());
// Divided by max(0, n - correction). Floating-point. A sharded dimension is gathered first. The
// gradient of stdev (torch.std) is 0 where the result is 0.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false,
           CallSite site = CallSite::current());
Tensor stdev(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false,
             CallSite site = CallSite::current());
// (sum of |x|^ord)^(1/ord); ord 0 counts nonzero elements, inf and -inf are the extremes of |x|.
// Over a sharded dimension: Partial(sum) for 0 and 1, Partial(max|min) for inf and -inf, otherwise
// one all_reduce of the sums. The gradient is 0 where the norm is 0.
Tensor vector_norm(const Tensor& x, double ord = 2, const Dims& dims = {}, bool keepdim = false,
                   CallSite site = CallSite::current());
// log(sum(exp(x))); integers in f32. A sharded dimension is gathered first.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false,
                 CallSite site = CallSite::current());

// --- extremes with indices ---

// Along one sharded dimension, one value and one index per rank are sent (one all_gather, or one
// all_to_all that shards the others), and the gradient has x's layout. Several sharded dimensions
// are gathered first.

// Without dim: the position in the flattened tensor. The first of equal elements; NaN propagates.
// i64.
Tensor argmax(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false,
              CallSite site = CallSite::current());
Tensor argmin(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false,
              CallSite site = CallSite::current());
// The gradient of a value goes to the chosen element.
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim = false,
                     CallSite site = CallSite::current());
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim = false,
                     CallSite site = CallSite::current());

// --- scans ---

// A sharded `dim` is gathered first (one all_gather). Integers and bool as i64. A Partial(sum|avg)
// keeps its placement.
Tensor cumsum(const Tensor& x, int dim, CallSite site = CallSite::current());
// A sharded `dim` is gathered first. Integers and bool as i64. The gradient is correct for zeros.
Tensor cumprod(const Tensor& x, int dim, CallSite site = CallSite::current());
// A sharded `dim` is gathered first.
Tensor logcumsumexp(const Tensor& x, int dim, CallSite site = CallSite::current());
// A sharded `dim` is gathered first. The last of equal elements; NaN propagates. The gradient goes
// to the chosen elements.
ValuesAndIndices cummax(const Tensor& x, int dim, CallSite site = CallSite::current());
ValuesAndIndices cummin(const Tensor& x, int dim, CallSite site = CallSite::current());

// --- sorting ---

// A sharded `dim` is gathered first (one all_gather), here and below. Stable; NaN sorts above every
// number. The gradient of a value goes to the element it came from.

ValuesAndIndices sort(const Tensor& x, int dim = -1, bool descending = false,
                      CallSite site = CallSite::current());
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false,
               CallSite site = CallSite::current());
// The k largest (smallest), sorted. Error{BadInput} for k outside [0, size].
ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true,
                      CallSite site = CallSite::current());
// The k-th smallest, counted from 1. Error{BadInput} for k outside [1, size].
ValuesAndIndices kthvalue(const Tensor& x, std::int64_t k, int dim = -1, bool keepdim = false,
                          CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
