#pragma once
// The replica check: whether what is Replicate is the same on the ranks that hold it. Rank's
// thread.
#include <string>
#include <vector>

#include <coshard/dtensor/tensor.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

struct NamedTensor {
  std::string name;  // what an error calls it
  Tensor tensor;
};

// Compares the bits of every DTensor along the mesh dimensions where it is Replicate. Plain tensors
// and what is replicated nowhere are left out. The ranks of a mesh give the same list.
//   Resumes: when the ranks' hashes are there.
//   Moves:   8 bytes per tensor: one all_gather per dimension of each mesh, label "replicas", of
//            which observers are not told; and each tensor from the device to the host.
//   Fails:   Error{BadInput} on all ranks of the mesh, which names the first tensor that differs,
//            and a rank that has something else than the first of its replicas; a captured step.
Task<void> verify_replicas(std::vector<NamedTensor> tensors, CallSite site = CallSite::current());

// Of the elements of this rank's part; copies them to the host.
std::uint64_t bits_hash(const Tensor& x);

}  // namespace coshard
