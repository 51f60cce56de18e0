#pragma once
// Reductions, scans and sorting.
// Conventions: dtensor/ops/ops.h.
#include <optional>

#include "dtensor/tensor.h"

namespace coshard {

// All dims when dim is absent. sum over a cut dim is Partial(sum).
Tensor sum(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false);
Tensor mean(const Tensor& x, std::optional<int> dim = std::nullopt, bool keepdim = false);
// Along the last-but-`inner` dim; a cut dim gives Partial(max). Not differentiable.
Tensor amax(const Tensor& x, int dim, bool keepdim = false);

}  // namespace coshard
