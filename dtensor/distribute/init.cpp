#include <coshard/dtensor/distribute/init.h>

#include <algorithm>
#include <cmath>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/ops/recipe.h"

namespace coshard::nn::init {
namespace {

struct Fans {
  double in, out;
};
Fans fans_of(const Tensor& x, const char* what) {
  CS_REQUIRE(x.ndim() >= 2, what, ": ", x,
             " has fewer than 2 dimensions, so its fan-in and fan-out are undefined");
  double field = 1;
  for (int d = 2; d < x.ndim(); ++d) field *= static_cast<double>(x.size(d));
  return {static_cast<double>(x.size(1)) * field, static_cast<double>(x.size(0)) * field};
}

double kaiming_std(const Tensor& x, double slope, Fan fan, const char* what) {
  const Fans fans = fans_of(x, what);
  const double size = std::max(1.0, fan == Fan::In ? fans.in : fans.out);
  return std::sqrt(2 / (1 + slope * slope) / size);
}

double xavier_std(const Tensor& x, double gain, const char* what) {
  const Fans fans = fans_of(x, what);
  return gain * std::sqrt(2 / std::max(1.0, fans.in + fans.out));
}

double below(double x) { return std::erfc(-x / std::sqrt(2)) / 2; }

// Solves below(x) = p by bisection, which is fast enough for parameters.
double quantile(double p, double low, double high) {
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (below(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

Tensor constant_(const Tensor& x, double value) {
  const NoGradGuard off;
  return fill_(x, value);
}
Tensor zeros_(const Tensor& x) { return constant_(x, 0); }
Tensor ones_(const Tensor& x) { return constant_(x, 1); }

Tensor uniform_(const Tensor& x, double low, double high) {
  const NoGradGuard off;
  coshard::uniform_(x, low, high);
  return x;
}
Tensor normal_(const Tensor& x, double mean, double std) {
  const NoGradGuard off;
  coshard::normal_(x, mean, std);
  return x;
}

Tensor trunc_normal_(const Tensor& x, double mean, double std, double low, double high) {
  CS_REQUIRE(std > 0 && low < high, "trunc_normal_: invalid std ", std, " or range from ", low,
             " to ", high);
  CS_REQUIRE(!x.is_distributed() || !x.layout().has_partial(), "trunc_normal_: ", x,
             " is Partial; redistribute it first");
  const NoGradGuard off;
  if (x.in_flight() && draw_later(x, "trunc_normal_", [=](const Tensor& y) {
        init::trunc_normal_(y, mean, std, low, high);
      }))
    return x;
  const double least = std::max((low - mean) / std, -40.0);
  const double most = std::min((high - mean) / std, 40.0);
  coshard::uniform_(x, below(least), below(most));
  std::vector<double> values = x.to_vector();
  for (double& value : values)
    value = std::clamp(mean + std * quantile(value, least, most), low, high);
  const Tensor drawn = Tensor::from_values(x.device(), x.local_shape(), x.dtype(), values);
  copy_(x, drawn.with_spec(x.spec()));
  return x;
}

Tensor xavier_uniform_(const Tensor& x, double gain) {
  const double bound = std::sqrt(3) * xavier_std(x, gain, "xavier_uniform_");
  return init::uniform_(x, -bound, bound);
}
Tensor xavier_normal_(const Tensor& x, double gain) {
  return init::normal_(x, 0, xavier_std(x, gain, "xavier_normal_"));
}
Tensor kaiming_uniform_(const Tensor& x, double slope, Fan fan) {
  const double bound = std::sqrt(3) * kaiming_std(x, slope, fan, "kaiming_uniform_");
  return init::uniform_(x, -bound, bound);
}
Tensor kaiming_normal_(const Tensor& x, double slope, Fan fan) {
  return init::normal_(x, 0, kaiming_std(x, slope, fan, "kaiming_normal_"));
}

}  // namespace coshard::nn::init
