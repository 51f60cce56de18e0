#pragma once
// Shared by the ways of summing gradients over replicas. Rank's thread.
#include <string_view>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// The ranks of `mesh` along `dim` must hold replicas of gradient number `index`, not shards or
// partial values: Error{BadInput} otherwise. `summed`: dimension of its own mesh to ignore.
void check_replicas_along(std::string_view who, const Tensor& gradient, std::size_t index,
                          const DeviceMesh& mesh, int dim, int summed = -1);

// The dimension of the gradient's own mesh that is dimension `dim` of `mesh`; -1: none.
int dim_of(const Tensor& gradient, const DeviceMesh& mesh, int dim);
// Whether the gradient is Replicate there: the whole value, no term of a sum.
bool is_whole_along(const Tensor& gradient, const DeviceMesh& mesh, int dim);

}  // namespace coshard
