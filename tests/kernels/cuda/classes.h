#pragma once
// Logits and targets of tests of losses.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels::testing {

inline constexpr std::int64_t kIgnoredClass = -100;

inline Data class_targets(std::int64_t rows, std::int64_t classes) {
  Data target = Data::integers(DType::I64, rows, 3, 0, static_cast<int>(classes) - 1);
  for (std::int64_t r = 1; r < rows; r += 3) target.set(r, kIgnoredClass);
  return target;
}

}  // namespace coshard::kernels::testing
