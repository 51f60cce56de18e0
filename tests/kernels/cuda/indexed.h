#pragma once
// Shapes and types of tests of indexing.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels::testing {

inline const std::vector<DType> kIndexed = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                            DType::I64, DType::I32, DType::Bool};

using Shape = std::vector<std::int64_t>;

inline std::int64_t product(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

}  // namespace coshard::kernels::testing
