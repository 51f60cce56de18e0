#pragma once
// Operands of tests of elementwise kernels.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels::testing {

inline const std::vector<DType> kEveryDType = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                               DType::I64, DType::I32, DType::Bool};

inline Data operand(DType dtype, std::int64_t count, unsigned seed, bool positive) {
  if (is_floating(dtype)) return Data::normal(dtype, count, seed);
  return Data::integers(dtype, count, seed, positive ? 1 : -5, 9);
}

}  // namespace coshard::kernels::testing
