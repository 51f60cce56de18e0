#pragma once
// Views and rearrangements: reshape, permute, expand, slice, cat, split. Conventions:
// coshard/dtensor/ops/ops.h.
#include <span>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// Several tensors: {a, b}, or a vector, span or array of them, which must live as long as the call.
class TensorList {
 public:
  template <class... Tensors>
  requires(sizeof...(Tensors) > 0 && (std::same_as<Tensors, Tensor> && ...))  //
      TensorList(const Tensors&... tensors)                                   // NOLINT: implicit
      : held_{tensors...}, tensors_(held_) {}
  template <class Range>
  requires std::convertible_to<const Range&, std::span<const Tensor>> TensorList(  // NOLINT
      const Range& tensors)
      : tensors_(tensors) {}
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;
  operator std::span<const Tensor>() const { return tensors_; }  // NOLINT

 private:
  std::vector<Tensor> held_;
  std::span<const Tensor> tensors_;
};

// These only move elements: any Partial stays unless stated otherwise, a shard moves with its
// dimension, and nothing is communicated unless a dimension that the operator mixes, drops or
// selects from is sharded; that dimension is redistributed first. Dimensions may be negative.

// --- reshaping ---

// One size may be -1. A view if logical_strides allow it, else a copy that cannot be written in
// place; if only the layout forbids it, one that follows x. Of merged or split dimensions the
// first's shard stays if new shards hold the same ([4,6] S(0) on 2 ranks as [24]); others are moved
// first.
Tensor view(const Tensor& x, const Shape& shape, CallSite site = CallSite::current());
Tensor reshape(const Tensor& x, const Shape& shape, CallSite site = CallSite::current());
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1,
               CallSite site = CallSite::current());
// Splits dimension `dim`; one of the sizes may be -1.
Tensor unflatten(const Tensor& x, int dim, const Shape& sizes, CallSite site = CallSite::current());
// Removes dimensions of size 1: all of them, or only `dim`.
Tensor squeeze(const Tensor& x, CallSite site = CallSite::current());
Tensor squeeze(const Tensor& x, int dim, CallSite site = CallSite::current());
Tensor unsqueeze(const Tensor& x, int dim, CallSite site = CallSite::current());
// Broadcasts dimensions of size 1; -1 keeps a size. A view that cannot be written in place.
Tensor expand(const Tensor& x, const Shape& shape, CallSite site = CallSite::current());

// --- reordering: views ---

Tensor transpose(const Tensor& x, int dim0, int dim1, CallSite site = CallSite::current());
Tensor t(const Tensor& x, CallSite site = CallSite::current());  // of at most 2 dimensions
Tensor permute(const Tensor& x, const Shape& dims, CallSite site = CallSite::current());
// Dimension source[i] becomes destination[i]; the others keep their order.
Tensor movedim(const Tensor& x, const Shape& source, const Shape& destination,
               CallSite site = CallSite::current());

// --- slicing: views ---

// x[start:end:step] along dim, as in Python (bounds are clamped). A sharded dim is redistributed
// first unless all of it is taken. The result is then a copy: what is written to it is written into
// x, too, with its gradient, and it is made again, by a collective, when an operator, a
// redistribute or a write uses it after x has changed. Reading its memory then is Error{BadInput}.
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1,
             CallSite site = CallSite::current());
// x itself, or redistributed so that `dim` is not sharded: do this before taking several slices
// along it.
Tensor whole_along(const Tensor& x, int dim, CallSite site = CallSite::current());
// Error{BadInput} for a range out of bounds.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length,
              CallSite site = CallSite::current());
Tensor select(const Tensor& x, int dim, std::int64_t index, CallSite site = CallSite::current());
// Chunks of `size` along dim, the last one smaller; or of the given sizes. A sharded dim is
// redistributed once.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim = 0,
                          CallSite site = CallSite::current());
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim,
                          CallSite site = CallSite::current());
inline std::vector<Tensor> split(const Tensor& x, const Shape& sizes, int dim = 0,
                                 CallSite site = CallSite::current()) {
  return split(x, sizes.span(), dim, site);
}
// Chunks of ceil(size / chunks); there may be fewer.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, int dim = 0,
                          CallSite site = CallSite::current());
std::vector<Tensor> unbind(const Tensor& x, int dim = 0, CallSite site = CallSite::current());
// The elements on the diagonal of dim1 and dim2 with offset (column minus row), as the last dim.
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, int dim1 = 0, int dim2 = 1,
                CallSite site = CallSite::current());

// --- copies ---

// Pads with `value`: pairs (before, after), the last dimension first; negative sizes crop. A
// Partial(sum) stays only for the value 0.
Tensor pad(const Tensor& x, std::span<const std::int64_t> margins, double value = 0,
           CallSite site = CallSite::current());
using Margins = InlineVector<std::int64_t, 16>;
inline Tensor pad(const Tensor& x, const Margins& margins, double value = 0,
                  CallSite site = CallSite::current()) {
  return pad(x, margins.span(), value, site);
}
// A tensor of `size` along dim that holds x at start, start + step, … and `value` elsewhere: the
// gradient of slice. A Partial(sum) stays only for the value 0.
Tensor place(const Tensor& x, int dim, std::int64_t start, std::int64_t step, std::int64_t size,
             double value = 0, CallSite site = CallSite::current());
// Equal layouts stay; Partial with Replicate is Partial. Different dtypes are promoted to one that
// holds all.
Tensor cat(std::span<const Tensor> parts, int dim = 0, CallSite site = CallSite::current());
inline Tensor cat(const TensorList& parts, int dim = 0, CallSite site = CallSite::current()) {
  return cat(std::span<const Tensor>(parts), dim, site);
}
template <class Range>
requires std::convertible_to<const Range&, std::span<const Tensor>> Tensor
cat(const Range& parts, int dim = 0, CallSite site = CallSite::current()) {
  return cat(std::span<const Tensor>(parts), dim, site);
}
// cat along a new dimension.
Tensor stack(const TensorList& parts, int dim = 0, CallSite site = CallSite::current());
// Tiles x: repeats[i] times along dimension i, with new dimensions in front.
Tensor repeat(const Tensor& x, const Shape& repeats, CallSite site = CallSite::current());
// Repeats each element `repeats` times; a sharded dim stays sharded where view would keep it.
Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, int dim,
                         CallSite site = CallSite::current());
Tensor flip(const Tensor& x, std::span<const std::int64_t> dims,
            CallSite site = CallSite::current());
inline Tensor flip(const Tensor& x, const Shape& dims, CallSite site = CallSite::current()) {
  return flip(x, dims.span(), site);
}
// Shifts elements by `shift` along dim, wrapping around.
Tensor roll(const Tensor& x, std::int64_t shift, int dim, CallSite site = CallSite::current());
// Zeros above (tril) or below (triu) the diagonal of the last two dimensions, which may be sharded.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0, CallSite site = CallSite::current());
Tensor triu(const Tensor& x, std::int64_t diagonal = 0, CallSite site = CallSite::current());
Tensor contiguous(const Tensor& x, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
