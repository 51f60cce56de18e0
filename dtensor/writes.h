#pragma once
// In-place writes on the tape. A write through a view becomes a part of its base's history, and the
// other views of the base catch up when they are next used; what handles that are no views of each
// other (detach, to_local, from_local, views of a DTensor) see of such a write has no gradient, and
// using it on the tape is an error. Rank's thread.
#include <string_view>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// Error{BadInput} "who_: ..." where a write to x would be lost or, on the tape, its gradient: x is
// a copy that a view operator made, or stretched; a leaf that requires a gradient, or a view or
// local part of one; memory that to_local or from_local shares. Then waits, in place, for the
// collectives that still read the memory.
void require_writable(const Tensor& x, std::string_view who);

// x's memory has been written to and holds `value`, which has a gradient: so has x from now on.
void record_write(const Tensor& x, const Tensor& value);

// The same with a constant, which has none. Counts the write.
void record_constant_write(const Tensor& x);

// What a view operator gives that changes nothing: x itself, or, off the tape, a view of it that
// has no gradient.
Tensor unchanged(const Tensor& x);

// Brings the gradient of x to what its memory holds now. Error{BadInput}: nobody knows it.
void catch_up(const Tensor& x);

}  // namespace coshard
