#pragma once
// Gradients against central differences.
#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::testing {

inline constexpr DType kF64 = DType::F64;

// Checks d(sum_i weight[i] * y[i])/dx against central differences; forward() fills y from x.
inline void expect_gradient(Data& x, const Data& gradient, const Data& weight, Data& y,
                            const std::function<void()>& forward, const std::string& what) {
  constexpr double kStep = 1e-5;
  const auto loss = [&] {
    forward();
    double sum = 0;
    for (std::int64_t i = 0; i < y.count(); ++i) sum += weight.get(i) * y.get(i);
    return sum;
  };
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double old = x.get(i);
    x.set(i, old + kStep);
    const double up = loss();
    x.set(i, old - kStep);
    const double down = loss();
    x.set(i, old);
    const double want = (up - down) / (2 * kStep);
    ASSERT_NEAR(gradient.get(i), want, 1e-7 * (1 + std::abs(want))) << what << " element " << i;
  }
  forward();
}

}  // namespace coshard::kernels::testing
