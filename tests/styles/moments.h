#pragma once
// Moments of what a module starts with.
#include <type_traits>

#include "tests/styles/support.h"

namespace coshard::testing {

inline double standard_deviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto count = static_cast<double>(values.size());
  return std::sqrt(squares / count - sum / count * sum / count);
}

}  // namespace coshard::testing
