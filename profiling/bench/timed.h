#pragma once
// Times a call: rounds of n calls after a warm-up, as the PyTorch programs do.
#include <chrono>

#include "profiling/robust_stats.h"

namespace coshard::bench {

constexpr int kRounds = 7;

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Microseconds per call.
template <class F>
RobustStats timed(const F& call, int n, int warm = 20) {
  for (int i = 0; i < warm; ++i) call();
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i) call();
    rounds.push_back(seconds_since(begin) / n * 1e6);
  }
  return robust_stats(rounds);
}

}  // namespace coshard::bench
