#pragma once
// What the device `sim` can count; a program that needs more is Error{BadInput}. Values.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace coshard {

inline constexpr std::int64_t kLongestNs = 1'000'000'000'000'000;  // of a clock; 11 days
inline constexpr std::size_t kMostBytes = 1'000'000'000'000'000;   // in use at once

// The time of a kernel or a collective. One too long for the clock is cut, so that it can be added.
inline std::int64_t counted_ns(double ns) {
  return std::llround(std::min(ns, static_cast<double>(kLongestNs)));
}

}  // namespace coshard
