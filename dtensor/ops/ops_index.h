#pragma once
// Selection by index: gather, scatter, index_select, pad, triangles, diagonals.
// Conventions: dtensor/ops/ops.h.
#include "dtensor/tensor.h"

namespace coshard {}  // namespace coshard
