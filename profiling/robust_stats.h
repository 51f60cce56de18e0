#pragma once
// Statistics of repeated measurements that a single slow run cannot distort. A value; any thread.
#include <cstddef>
#include <vector>

namespace coshard {

struct RobustStats {
  double median = 0, min = 0, max = 0;
  double spread = 0;  // median of the distances from the median
  std::size_t count = 0;
};

// All zero for no samples.
RobustStats robust_stats(std::vector<double> samples);

}  // namespace coshard
