#pragma once
// Single collectives for the library's own use, off the tape: they return with the result in
// flight. Rank's thread.
#include <functional>
#include <span>
#include <string_view>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// For Collective::shape; of the tensors of a bucket.
Counts shape_to_compare(const Shape& shape);
Counts shapes_to_compare(std::span<const Tensor> list);

// Issues `collective` (geometry and label) from one row-major tensor into another, or in place, and
// returns at once. Keeps both buffers alive until it is over on every rank, and leaves `to` in
// flight. On the CPU the transfer begins once `from` is ready; other devices order it on the
// compute stream.
void issue_into(Communicator& communicator, Collective collective, const Tensor& from,
                const Tensor& to);

// The same, but `complete`, if any, then moves what `into` has received to `to`, which is left in
// flight instead: on the CPU as part of the transfer, on any thread; elsewhere in compute-stream
// order, when `to` is first waited for.
void issue_through(Communicator& communicator, Collective collective, const Tensor& from,
                   const Tensor& into, const Tensor& to, std::function<void()> complete);

// What a collective shows, and what ranks compare; see Collective.
struct Told {
  std::string_view label;
  Counts order = nullptr, shape = nullptr;
  std::shared_ptr<const ReplicaHashes> replicas = nullptr;
};

// All-reduces `terms` in place and leaves it in flight.
void issue_all_reduce(Communicator& communicator, Reduce reduce, const Tensor& terms, Told told);

// Broadcast from rank `source` along mesh dimension m: a new tensor, in flight.
Tensor broadcast_along(const Tensor& whole, const DeviceMesh& mesh, int m, int source,
                       std::string_view label);

}  // namespace coshard
