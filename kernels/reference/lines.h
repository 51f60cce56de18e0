#pragma once
// Lines along the middle dimension of [outer, extent, inner], and reductions over one. Used by the
// reference loops only.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {

// Calls f(offset of the first element, line number) for every line.
template <class Args, class F>
void each_line(const Args& args, F&& f) {
  for (std::int64_t o = 0; o < args.outer; ++o)
    for (std::int64_t i = 0; i < args.inner; ++i)
      f(o * args.extent * args.inner + i, o * args.inner + i);
}

template <class T>
struct Line {
  const T* first;
  std::int64_t extent, stride;
  double get(std::int64_t i) const { return static_cast<double>(first[i * stride]); }
};

template <class T>
double line_sum(const Line<T>& x) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.extent; ++i) sum += x.get(i);
  return sum;
}

template <class T>
double line_mean(const Line<T>& x) {
  return line_sum(x) / static_cast<double>(x.extent);
}

// Of x, or of |x|; NaN propagates.
template <class T>
double line_extreme(const Line<T>& x, bool largest, bool absolute) {
  double best = std::numeric_limits<double>::infinity() * (largest ? -1 : 1);
  for (std::int64_t i = 0; i < x.extent; ++i) {
    const double value = absolute ? std::abs(x.get(i)) : x.get(i);
    if (std::isnan(value)) return value;
    best = largest ? std::max(best, value) : std::min(best, value);
  }
  return best;
}

// Divided by max(0, extent - correction).
template <class T>
double line_variance(const Line<T>& x, double correction) {
  const double mean = line_mean(x);
  double sum = 0;
  for (std::int64_t i = 0; i < x.extent; ++i) sum += (x.get(i) - mean) * (x.get(i) - mean);
  return sum / std::max(0.0, static_cast<double>(x.extent) - correction);
}

template <class T>
double line_log_sum_exp(const Line<T>& x) {
  const double high = line_extreme(x, true, false);
  if (std::isinf(high)) return high;
  double sum = 0;
  for (std::int64_t i = 0; i < x.extent; ++i) sum += std::exp(x.get(i) - high);
  return high + std::log(sum);
}

// value|^power; for power 0 whether value is nonzero.
inline double abs_power(double value, double power) {
  if (power == 0) return value != 0 ? 1 : 0;
  if (power == 1) return std::abs(value);
  return power == 2 ? value * value : std::pow(std::abs(value), power);
}

}  // namespace coshard::kernels::reference
