#pragma once
// Products and how near they are.
#include <coshard/runtime/error.h>
#include "kernels/cuda/lt_api.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels::testing {

// How far two orders of adding may be apart.
inline double product_tolerance(DType dtype, std::int64_t k) {
  return tolerance(dtype) * (dtype == DType::F64 ? 1 : 1 + std::sqrt(static_cast<double>(k)));
}

}  // namespace coshard::kernels::testing
