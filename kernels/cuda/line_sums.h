#pragma once
// Reductions of a team over one line: sums, extremes, variance, log-sum-exp. Every thread of the
// team gets the result. Used by the .cu files only.
#include <cmath>
#include <limits>

#include "kernels/cuda/team.h"

namespace coshard::kernels::cuda {

template <class A>
CS_BODY bool is_nan(A value) {
  return value != value;
}
template <class A>
CS_BODY A infinity() {
  return std::numeric_limits<A>::infinity();
}

// The sum of f(element).
template <class T, int W, class F>
CS_BODY Wide<T> line_sum(Team& team, const Span<const T, W>& line, F&& f) {
  Wide<T> sum = 0;
  each_wide(team, line, [&](Wide<T> v) { sum += f(v); });
  return team.sum(sum);
}

template <class T, int W>
CS_BODY Wide<T> line_mean(Team& team, const Span<const T, W>& line) {
  return line_sum(team, line, [](Wide<T> v) { return v; }) / static_cast<Wide<T>>(line.packs * W);
}

// Sum of squared differences from `mean`.
template <class T, int W>
CS_BODY Wide<T> line_squares(Team& team, const Span<const T, W>& line, Wide<T> mean) {
  return line_sum(team, line, [&](Wide<T> v) { return (v - mean) * (v - mean); });
}

// NaN wins.
template <class A>
CS_BODY A extreme_of(A a, A b, bool largest) {
  if (is_nan(a) || is_nan(b)) return is_nan(a) ? a : b;
  return largest ? (a < b ? b : a) : (b < a ? b : a);
}

// The extreme of the elements, or of their absolute values.
template <class T, int W>
CS_BODY Wide<T> line_extreme(Team& team, const Span<const T, W>& line, bool largest,
                             bool absolute) {
  using A = Wide<T>;
  A best = largest ? -infinity<A>() : infinity<A>();
  each_wide(team, line, [&](A v) { best = extreme_of(best, absolute ? std::abs(v) : v, largest); });
  return team.combine(best, [&](A a, A b) { return extreme_of(a, b, largest); });
}

// Combines the extremes of two parts and their counts; NaNs count as equal.
template <class A>
CS_BODY Two<A> extremes_of(const Two<A>& x, const Two<A>& y, bool largest) {
  const A best = extreme_of(x.a, y.a, largest);
  const auto times = [&](const Two<A>& part) {
    return part.a == best || (is_nan(part.a) && is_nan(best)) ? part.b : A(0);
  };
  return {best, times(x) + times(y)};
}

// {the extreme of the elements, or of their absolute values; its number of occurrences}
template <class T, int W>
CS_BODY Two<Wide<T>> line_extremes(Team& team, const Span<const T, W>& line, bool largest,
                                   bool absolute) {
  using A = Wide<T>;
  Two<A> best{largest ? -infinity<A>() : infinity<A>(), 0};
  each_wide(team, line, [&](A v) {
    best = extremes_of(best, Two<A>{absolute ? std::abs(v) : v, A(1)}, largest);
  });
  return team.combine(best,
                      [&](const Two<A>& a, const Two<A>& b) { return extremes_of(a, b, largest); });
}

// {the largest element, the sum of e^(element - largest)}
template <class T, int W>
CS_BODY Two<Wide<T>> line_exponents(Team& team, const Span<const T, W>& line) {
  const Wide<T> high = line_extreme(team, line, true, false);
  return {high, line_sum(team, line, [&](Wide<T> v) { return std::exp(v - high); })};
}
template <class A>
CS_BODY A log_of(const Two<A>& exponents) {
  return std::isinf(exponents.a) ? exponents.a : exponents.a + std::log(exponents.b);
}

// |value|^power; for power 0 whether value is nonzero.
template <class A>
CS_BODY A abs_power(A value, A power) {
  if (power == 0) return static_cast<A>(value != 0 ? 1 : 0);
  if (power == 1) return std::abs(value);
  return power == 2 ? value * value : std::pow(std::abs(value), power);
}

}  // namespace coshard::kernels::cuda
