#pragma once
// The replica check: whether Replicate tensors are equal on all ranks that hold them. Rank's
// thread.
#include <string>
#include <vector>

#include <coshard/dtensor/tensor.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

struct NamedTensor {
  std::string name;  // what errors call it
  Tensor tensor;
};

// Compares the bits of every DTensor along the mesh dimensions where it is Replicate. Ignores plain
// tensors and tensors without a Replicate. The ranks of a mesh pass the same list.
//   Resumes: when all hashes have arrived.
//   Moves:   8 bytes per tensor: one all_gather per dimension of each mesh, label "replicas",
//            hidden from observers; and each tensor from the device to the host.
//   Fails:   Error{BadInput} on all ranks of the mesh: names the first tensor that differs, and a
//            rank that differs from the first replica. Also in a captured step.
Task<void> verify_replicas(std::vector<NamedTensor> tensors, CallSite site = CallSite::current());

// A hash of the bits of the local tensor's elements; copies them to the host.
std::uint64_t bits_hash(const Tensor& x);

}  // namespace coshard
