#pragma once
// In-place writes on the tape. A write through a view becomes part of its base's history, and other
// views of the base catch up when next used. Handles that share memory without being views (detach,
// to_local, from_local) see the new values but not their gradient; using them on the tape is an
// error. Views that had to be copied: copied_views.h. Rank's thread.
#include <string_view>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// Error{BadInput} "who: ..." if a write to x, or its gradient on the tape, would be lost: x is a
// copy made by a view operator where strides allow no view, or is expanded; a leaf that requires a
// gradient, or a view or local tensor of one; memory shared by to_local or from_local. Then waits
// in place for the collectives that still fill or read the memory; a copied view that is behind is
// made again.
void require_writable(const Tensor& x, std::string_view who);
// Only the check.
void require_may_write(const Tensor& x, std::string_view who);
// Error{BadInput} "who: ...": an operator in place on x cannot have such a result.
void require_result_fits(const Tensor& x, const Shape& shape, DType dtype, std::string_view who);

// Copies `value`, of x's shape and dtype, into x's memory in x's layout, and counts the write. A
// value with a gradient becomes part of x's history.
void store(const Tensor& x, const Tensor& value, std::string_view who);

// x's memory now holds `value`, which has a gradient; from now on x has that gradient.
void record_write(const Tensor& x, const Tensor& value);

// The same for a constant, which has no gradient. Counts the write.
void record_constant_write(const Tensor& x);

// The result of a view operator that changes nothing: x itself if it requires no gradient or is
// empty, otherwise a view of it, on the tape if that is recording.
Tensor unchanged(const Tensor& x);

// Makes x's gradient match what its memory holds now. Error{BadInput} if it is unknown.
void catch_up(const Tensor& x);

}  // namespace coshard
