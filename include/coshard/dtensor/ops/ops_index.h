#pragma once
// Selection by index: gather, scatter, index_select. Conventions: coshard/dtensor/ops/ops.h. An
// index is i64 or i32 and gets no gradient; an entry out of bounds is Error{BadInput} on the rank
// that holds it.
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// out[i][j] = x[index[i][j]][j] for dim 0, and so on: out has the index's shape, which may be
// smaller than x's in the other dimensions. If x is sharded along `dim`, every rank looks up what
// it holds and the result is Partial(sum) (bool: x is redistributed first). Along other dimensions
// x and index are sharded alike; an index sharded along `dim` shards the result. A Partial x stays
// Partial. The gradient has x's layout.
Tensor gather(const Tensor& x, int dim, const Tensor& index, CallSite site = CallSite::current());
// A copy of x with out[index[i][j]][j] = src[i][j] (dim 0); src may be larger than the index. A
// shard along `dim` is redistributed first. If x and src are the same Partial, so is the result.
// Among duplicate indices the last value wins, but each of them gets the gradient of src (as in
// PyTorch).
Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
               CallSite site = CallSite::current());
// One value for all. A Partial(sum) x stays Partial only for the value 0.
Tensor scatter(const Tensor& x, int dim, const Tensor& index, double value,
               CallSite site = CallSite::current());
// x + scatter_add_zeros(...).
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& src,
                   CallSite site = CallSite::current());
// Zeros of `shape` with out[index[i][j]][j] += src[i][j] (dim 0): the gradient of gather. index and
// src sharded along `dim` give Partial(sum) without a collective. `cuts`: bit m asks for a result
// sharded along `dim` over mesh dimension m, where that moves nothing.
Tensor scatter_add_zeros(const Shape& shape, int dim, const Tensor& index, const Tensor& src,
                         std::int64_t cuts = 0, CallSite site = CallSite::current());
// x[index] along dim, with a 1-D index. As gather; a sharded index shards the result.
Tensor index_select(const Tensor& x, int dim, const Tensor& index,
                    CallSite site = CallSite::current());

// The first shape[d] elements of every dimension d except `but_dim`.
Tensor cropped(const Tensor& x, const Shape& shape, int but_dim,
               CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
