#pragma once
// Transfers for the library's own use, off the tape: they return with the result in flight. Rank's
// thread.
#include <string_view>

#include <coshard/dtensor/redistribute/redistribute.h>

namespace coshard {

// What operators use: no tape, and Replicate -> Partial is allowed (each rank keeps its share).
Tensor redistribute_raw(const DTensor& source, const Layout& target);

// Issues `collective` (geometry and label) from one row-major tensor into another, or in place;
// keeps both buffers until it is over on every rank, and leaves `to` in flight. Returns at once: on
// the cpu the transfer begins when `from` is there; elsewhere that
// is in the order of the compute stream.
void issue_into(Communicator& communicator, Collective collective, const Tensor& from,
                const Tensor& to);

// A sum (average, …) of what every rank has, in its place and in flight.
void issue_all_reduce(Communicator& communicator, Reduce reduce, const Tensor& terms,
                      std::string_view label);

// Rank `source` of mesh dimension m sends `whole` to all of that dimension: a new tensor, in
// flight.
Tensor broadcast_along(const Tensor& whole, const DeviceMesh& mesh, int m, int source,
                       std::string_view label);

}  // namespace coshard
