#pragma once
// Selection by index: gather, scatter, index_select.
// Conventions: coshard/dtensor/ops/ops.h. An index is i64 or i32 and gets no gradient; an entry
// outside the dimension is Error{BadInput} on the rank that has it.
#include <coshard/dtensor/tensor.h>

namespace coshard {

// out[i][j] = x[index[i][j]][j] for dim 0, and so on: out has the index's shape, which may be
// smaller than x's in the other dimensions. Where x is cut along `dim`, every rank looks up what it
// has and the result is Partial(sum) (bool: x is redistributed first); elsewhere x and index are
// cut alike, and a cut of `dim` of the index cuts the result. A Partial x stays Partial. The
// gradient comes in x's layout.
Tensor gather(const Tensor& x, int dim, const Tensor& index, CallSite site = CallSite::current());
// A copy of x with out[index[i][j]][j] = src[i][j] (dim 0); src may be larger than the index. A cut
// of `dim` is redistributed first. Partial x and src alike stay Partial. Where indices are equal,
// the last one counts in the value, and every one in the gradient of src (as PyTorch).
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
               CallSite site = CallSite::current());
// With one value instead: a Partial(sum) x stays for 0 only.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, double value,
               CallSite site = CallSite::current());
// x plus scatter_add_zeros.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                   CallSite site = CallSite::current());
// Zeros of `shape` with out[index[i][j]][j] += src[i][j] (dim 0): the gradient of gather. index and
// src cut along `dim`: Partial(sum), no collective. `cuts`: bit m says that the result is to be cut
// along `dim` by mesh dimension m, where that moves nothing.
Tensor scatter_add_zeros(const Shape& shape, int dim, const Tensor& index, const Tensor& src,
                         std::int64_t cuts = 0, CallSite site = CallSite::current());
// x[index] along dim, index 1-D. As gather; a cut index cuts the result.
Tensor index_select(const Tensor& x, int dim, const Tensor& index,
                    CallSite site = CallSite::current());

// The first shape[d] elements of every dimension d but `but_dim`.
Tensor cropped(const Tensor& x, const Shape& shape, int but_dim,
               CallSite site = CallSite::current());

}  // namespace coshard
