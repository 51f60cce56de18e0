#include "profiling/robust_stats.h"

#include <algorithm>
#include <cmath>

namespace coshard {
namespace {

double median_of_sorted(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

RobustStats robust_stats(std::vector<double> samples) {
  RobustStats stats;
  if (samples.empty()) return stats;
  std::sort(samples.begin(), samples.end());
  stats.count = samples.size();
  stats.min = samples.front();
  stats.max = samples.back();
  stats.median = median_of_sorted(samples);
  for (double& sample : samples) sample = std::abs(sample - stats.median);
  std::sort(samples.begin(), samples.end());
  stats.spread = median_of_sorted(samples);
  return stats;
}

}  // namespace coshard
