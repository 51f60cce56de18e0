#pragma once
// Views and rearrangements: reshape, permute, expand, slice, cat, split.
// Conventions: coshard/dtensor/ops/ops.h.
#include <span>
#include <vector>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// Several tensors: {a, b}, or a vector, span or array of them, which lives as long as the call.
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

// All of these only move elements: a Partial of any kind stays one unless said otherwise, a shard
// moves with its dimension, and no collective is issued unless a dimension that the operator mixes,
// drops or selects from is cut. That cut is redistributed first. Dimensions may be negative.

// --- another shape ---

// One size may be -1. A view where strides allow it, otherwise a copy, which in-place operators
// refuse. The first dimension of a run that is joined or split may stay cut where old and new parts
// hold the same elements ([4,6] S(0) on 2 as [24]); any other cut of it is redistributed first.
Tensor view(const Tensor& x, const Shape& shape, CallSite site = CallSite::current());
Tensor reshape(const Tensor& x, const Shape& shape, CallSite site = CallSite::current());
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1,
               CallSite site = CallSite::current());
// Dimension `dim` as several; one of the sizes may be -1.
Tensor unflatten(const Tensor& x, int dim, const Shape& sizes, CallSite site = CallSite::current());
// Without dimensions of size 1: all of them, or `dim` if it is one.
Tensor squeeze(const Tensor& x, CallSite site = CallSite::current());
Tensor squeeze(const Tensor& x, int dim, CallSite site = CallSite::current());
Tensor unsqueeze(const Tensor& x, int dim, CallSite site = CallSite::current());
// Sizes of 1 stretch; -1 keeps a size. A view, which in-place operators refuse.
Tensor expand(const Tensor& x, const Shape& shape, CallSite site = CallSite::current());

// --- another order: views ---

Tensor transpose(const Tensor& x, int dim0, int dim1, CallSite site = CallSite::current());
Tensor t(const Tensor& x, CallSite site = CallSite::current());  // of at most 2 dimensions
Tensor permute(const Tensor& x, const Shape& dims, CallSite site = CallSite::current());
// Dimension source[i] becomes destination[i]; the others keep their order.
Tensor movedim(const Tensor& x, const Shape& source, const Shape& destination,
               CallSite site = CallSite::current());

// --- pieces: views ---

// x[start:end:step] along dim, as Python reads it (bounds beyond the ends are held within); a cut
// dim is redistributed first unless it is taken whole.
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step = 1,
             CallSite site = CallSite::current());
// x itself, or redistributed so that `dim` is not cut: before several pieces are taken along it.
Tensor whole_along(const Tensor& x, int dim, CallSite site = CallSite::current());
// Error{BadInput} for what lies outside.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length,
              CallSite site = CallSite::current());
Tensor select(const Tensor& x, int dim, std::int64_t index, CallSite site = CallSite::current());
// Pieces of `size` along dim, the last one smaller; or of these sizes. A cut dim is redistributed
// once.
std::vector<Tensor> split(const Tensor& x, std::int64_t size, int dim = 0,
                          CallSite site = CallSite::current());
std::vector<Tensor> split(const Tensor& x, std::span<const std::int64_t> sizes, int dim,
                          CallSite site = CallSite::current());
inline std::vector<Tensor> split(const Tensor& x, const Shape& sizes, int dim = 0,
                                 CallSite site = CallSite::current()) {
  return split(x, sizes.span(), dim, site);
}
// Pieces of ceil(size / chunks); there may be fewer.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, int dim = 0,
                          CallSite site = CallSite::current());
std::vector<Tensor> unbind(const Tensor& x, int dim = 0, CallSite site = CallSite::current());
// The elements with offset (columns minus rows) on the diagonal of dim1 and dim2, as the last dim.
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, int dim1 = 0, int dim2 = 1,
                CallSite site = CallSite::current());

// --- copies ---

// `value` before and after: pairs (before, after), the last dimension first; negative ones crop. A
// Partial(sum) stays for 0 only.
Tensor pad(const Tensor& x, std::span<const std::int64_t> margins, double value = 0,
           CallSite site = CallSite::current());
using Margins = InlineVector<std::int64_t, 16>;
inline Tensor pad(const Tensor& x, const Margins& margins, double value = 0,
                  CallSite site = CallSite::current()) {
  return pad(x, margins.span(), value, site);
}
// A tensor of `size` along dim that holds x at start, start + step, … and `value` elsewhere: the
// gradient of slice. A Partial(sum) stays for 0 only.
Tensor place(const Tensor& x, int dim, std::int64_t start, std::int64_t step, std::int64_t size,
             double value = 0, CallSite site = CallSite::current());
// Equal layouts stay; Partial with Replicate is Partial. Of different dtypes: the one that holds
// all.
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
// The whole of it, repeats[i] times along dimension i (new ones in front).
Tensor repeat(const Tensor& x, const Shape& repeats, CallSite site = CallSite::current());
// Every element `repeats` times in a row; a cut dim stays cut where view keeps it.
Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, int dim,
                         CallSite site = CallSite::current());
Tensor flip(const Tensor& x, std::span<const std::int64_t> dims,
            CallSite site = CallSite::current());
inline Tensor flip(const Tensor& x, const Shape& dims, CallSite site = CallSite::current()) {
  return flip(x, dims.span(), site);
}
// Moves elements by `shift` along dim, around the end.
Tensor roll(const Tensor& x, std::int64_t shift, int dim, CallSite site = CallSite::current());
// Zero above (tril) or below (triu) the diagonal of the last two dimensions, which may be cut.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0, CallSite site = CallSite::current());
Tensor triu(const Tensor& x, std::int64_t diagonal = 0, CallSite site = CallSite::current());
Tensor contiguous(const Tensor& x, CallSite site = CallSite::current());

}  // namespace coshard
