#pragma once
// The replica check: whether Replicate tensors are equal on all ranks that hold them. Rank's
// thread.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

struct NamedTensor {
  std::string name;  // what errors call it
  Tensor tensor;
  std::string_view remedy =
      "if each rank holds only a part of the gradient, declare it Partial (grad_placements)";
};

// Compares the bits of every DTensor along the mesh dimensions where it is Replicate. Ignores plain
// tensors and tensors without a Replicate. The ranks of a mesh pass the same list.
//   Resumes: when all hashes have arrived.
//   Moves:   8 bytes per tensor: one all_gather per dimension of each mesh, label "replicas",
//            hidden from observers; and each tensor from the device to the host.
//   Fails:   Error{BadInput} on all ranks of the mesh: names the first tensor that differs, and a
//            rank that differs from the first replica. Also in a captured step.
Task<void> verify_replicas(std::vector<NamedTensor> tensors, CallSite site = CallSite::current());

// "parameter 'layers.0.weight'", or its number (of `count`) and shape where no module has named it.
std::string name_of_parameter(const Tensor& x, std::size_t number, std::size_t count = 0);

// The dimension of the gradient's own mesh that is dimension `dim` of `mesh`; -1: none.
int dim_of(const Tensor& gradient, const DeviceMesh& mesh, int dim);
// Whether the gradient is Replicate there: the whole value, no term of a sum.
bool is_whole_along(const Tensor& gradient, const DeviceMesh& mesh, int dim);

// What ranks compare of parameters that they must hold alike along dimension `dim` of `mesh`
// (Collective::replicas). Those in flight, and those whose layout says otherwise, count as equal.
std::shared_ptr<const ReplicaHashes> replica_hashes(const std::vector<Tensor>& parameters,
                                                    const DeviceMesh& mesh, int dim);
// Makes them those of rank `source` along the dimension, by one broadcast each (label "replicas"),
// and waits for it.
void take_replicas_of(int source, const std::vector<Tensor>& parameters, const DeviceMesh& mesh,
                      int dim, std::string_view who);

}  // namespace coshard
