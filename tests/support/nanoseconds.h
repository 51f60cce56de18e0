#pragma once
// Spans of time in nanoseconds, as deadlines and clocks count them.
#include <cstdint>

namespace coshard::testing {

constexpr std::int64_t kMicrosecond = 1'000;
constexpr std::int64_t kMillisecond = 1'000 * kMicrosecond;
constexpr std::int64_t kSecond = 1'000 * kMillisecond;
constexpr std::int64_t kHour = 3'600 * kSecond;

}  // namespace coshard::testing
