#pragma once
// Which data a tensor holds (Tensor::origin), as far as ranks that run the same program agree on
// it: what ranks create together is numbered, DTensors and parameters; a result has the origins of
// its inputs, whatever the operator, since ranks may take other paths to it. Other tensors, of
// which a rank may have more than its peers or another one, are unknown, and so is what branches
// create, which may run in another order. Rank's thread.
#include <cstdint>
#include <span>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/comm/communicator.h>

namespace coshard {

enum class Numbered { DTensor, Parameter };
// Gives `tensor` the next number of its kind, whatever it was made of.
Tensor numbered(Tensor tensor, Numbered kind);

// Of what is made of these inputs: their origin, or a hash of those that differ.
std::uint64_t origin_of_result(std::span<const Tensor> in);

// Of the gradient of a tensor; 0: unknown.
inline std::uint64_t origin_of_gradient(std::uint64_t of_tensor) {
  return of_tensor == 0 ? 0 : of_tensor ^ 0x9e3779b97f4a7c15U;
}

// For Collective::order: the name of each parameter, where its module has given one, else its
// origin. Null if one has neither.
Counts order_to_compare(std::span<const Tensor> list);
// Of a bucket of these tensors.
std::uint64_t origin_of(const Counts& order);

}  // namespace coshard
