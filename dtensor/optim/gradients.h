#pragma once
// Shared by the ways of summing gradients over replicas. Rank's thread.
#include <string_view>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// The ranks of `mesh` along `dim` must hold replicas of gradient number `index`, not shards or
// partial values: Error{BadInput} otherwise. `summed`: dimension of its own mesh to ignore.
void check_replicas_along(std::string_view who, const Tensor& gradient, std::size_t index,
                          const DeviceMesh& mesh, int dim, int summed = -1);

// What a rank did that lacks the gradient of `parameter`, number `index` of `count`: "called x with
// no gradient for 'layers.0.weight', parameter 3 of 9". Its peers must have done the same.
Noted without_gradient(std::string_view did, const Tensor& parameter, std::size_t index,
                       std::size_t count);

// The parameter, or a row-major copy of it, which the optimizer `who` then copies back.
Tensor rows_to_update(const Tensor& parameter, const char* who);

}  // namespace coshard
