#include <cmath>
#include <vector>

#include "kernels/reference/lines.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels::reference {
namespace {

double sign_of(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

// For each element i of a line, dx[i] = `scale` times the derivative.
template <class T>
void product_grad(const Line<T>& x, double scale, std::vector<double>& dx) {
  double before = 1;
  for (std::int64_t i = 0; i < x.extent; ++i) {
    dx[i] = scale * before;
    before *= x.get(i);
  }
  double after = 1;
  for (std::int64_t i = x.extent; i-- > 0;) {
    dx[i] *= after;
    after *= x.get(i);
  }
}

template <class T>
void extreme_grad(const Line<T>& x, bool largest, bool absolute, double scale,
                  std::vector<double>& dx) {
  const double best = line_extreme(x, largest, absolute);
  double ties = 0;
  for (std::int64_t i = 0; i < x.extent; ++i) {
    const double value = absolute ? std::abs(x.get(i)) : x.get(i);
    const bool hit = value == best || (std::isnan(value) && std::isnan(best));
    ties += hit ? 1 : 0;
    dx[i] = hit ? (absolute ? sign_of(x.get(i)) : 1) : 0;
  }
  for (double& d : dx) d *= scale / ties;
}

template <class T>
void variance_grad(const Line<T>& x, double correction, double scale, std::vector<double>& dx) {
  const double mean = line_mean(x);
  const double divisor = std::max(0.0, static_cast<double>(x.extent) - correction);
  for (std::int64_t i = 0; i < x.extent; ++i) dx[i] = scale * 2 / divisor * (x.get(i) - mean);
}

double abs_power_slope(double value, double power) {
  if (power == 0 || value == 0) return 0;
  if (power == 1) return sign_of(value);
  return power == 2 ? 2 * value : power * sign_of(value) * std::pow(std::abs(value), power - 1);
}

template <class T>
void line_grad(ReduceOp op, double alpha, const Line<T>& x, double dy, std::vector<double>& dx) {
  switch (op) {
    case ReduceOp::Product: return product_grad(x, dy, dx);
    case ReduceOp::Max: return extreme_grad(x, true, false, dy, dx);
    case ReduceOp::Min: return extreme_grad(x, false, false, dy, dx);
    case ReduceOp::AbsMax: return extreme_grad(x, true, true, dy, dx);
    case ReduceOp::AbsMin: return extreme_grad(x, false, true, dy, dx);
    case ReduceOp::Variance: return variance_grad(x, alpha, dy, dx);
    case ReduceOp::Deviation: {
      const double deviation = std::sqrt(line_variance(x, alpha));
      return variance_grad(x, alpha, deviation == 0 ? 0 : dy / (2 * deviation), dx);
    }
    default: break;
  }
  const double total = op == ReduceOp::LogSumExp ? line_log_sum_exp(x) : 0;
  for (std::int64_t i = 0; i < x.extent; ++i) {
    const double value = x.get(i);
    if (op == ReduceOp::LogSumExp) dx[i] = dy * std::exp(value - total);
    if (op == ReduceOp::NanSum) dx[i] = std::isnan(value) ? 0 : dy;
    if (op == ReduceOp::AbsPower) {
      const double slope = abs_power_slope(value, alpha);
      dx[i] = slope == 0 ? 0 : dy * slope;
    }
  }
}

}  // namespace

void run(const ReduceGrad& args) {
  CS_REQUIRE(args.op != ReduceOp::Sum && args.op != ReduceOp::Mean,
             "reduce_grad does not support sum and mean");
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    std::vector<double> dx(static_cast<std::size_t>(args.extent));
    each_line(args, [&](std::int64_t first, std::int64_t line) {
      const Line<T> x{as<T>(args.x) + first, args.extent, args.inner};
      line_grad(args.op, args.alpha, x, get(as<T>(args.dy), line), dx);
      for (std::int64_t i = 0; i < args.extent; ++i)
        as<T>(args.dx)[first + i * args.inner] = rounded<T>(dx[i]);
    });
  });
}

}  // namespace coshard::kernels::reference
