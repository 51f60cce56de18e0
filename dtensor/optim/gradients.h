#pragma once
// What the ways of summing gradients over replicas share. Rank's thread.
#include <string_view>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// The ranks of `mesh` along `dim` must hold replicas of gradient number `index`, not shards or
// partial values: Error{BadInput} otherwise. `summed`: a dimension of the gradient's own mesh that
// does not count, if any.
void check_replicas_along(std::string_view who, const Tensor& gradient, std::size_t index,
                          const DeviceMesh& mesh, int dim, int summed = -1);

}  // namespace coshard
