#pragma once
// All types of elements.
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels::testing {

inline const std::vector<DType> kAll = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                        DType::I64, DType::I32, DType::Bool};

}  // namespace coshard::kernels::testing
