#include "dtensor/init.h"

#include <cmath>

#include "dtensor/random.h"

namespace coshard {

void kaiming_uniform_(const Tensor& x, double a) {
  CS_REQUIRE(x.ndim() >= 2, "kaiming_uniform_: ", x, " has fewer than two dimensions");
  std::int64_t fan_in = 1;
  for (int d = 1; d < x.ndim(); ++d) fan_in *= x.size(d);
  const double bound = std::sqrt(6 / ((1 + a * a) * static_cast<double>(fan_in)));
  uniform_(x, -bound, bound);
}

}  // namespace coshard
