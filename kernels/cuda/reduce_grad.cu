// The gradients of reductions along lines.
#include "kernels/cuda/line_sums.h"

namespace coshard::kernels::cuda {
namespace {

template <class A>
CS_BODY A slope_sign(A value) {
  return static_cast<A>(value > 0 ? 1 : value < 0 ? -1 : 0);
}

template <class A>
CS_BODY A power_slope(A value, A power) {
  if (power == 0 || value == 0) return 0;
  if (power == 1) return slope_sign(value);
  return power == 2 ? 2 * value : power * slope_sign(value) * std::pow(std::abs(value), power - 1);
}

// A product without one of its factors: the ordinary factors are divided, zeros and what is not
// finite are counted.
class ProductGrad {
 public:
  template <class T>
  CS_BODY ProductGrad(Team& team, const Span<const T, 1>& line) {
    double ordinary = 1, infinite = 1;
    std::int64_t zeros = 0, infinities = 0;
    each_wide(team, line, [&](Wide<T> v) {
      const bool finite = v - v == 0;
      zeros += v == 0 ? 1 : 0;
      infinities += finite ? 0 : 1;
      infinite *= finite ? 1 : static_cast<double>(v);
      ordinary *= finite && v != 0 ? static_cast<double>(v) : 1;
    });
    const auto times = [](double a, double b) { return a * b; };
    ordinary_ = team.combine(ordinary, times);
    infinite_ = team.combine(infinite, times);
    zeros_ = team.sum(zeros);
    infinities_ = team.sum(infinities);
  }
  CS_BODY double without(double value) const {
    const bool finite = value - value == 0;
    const std::int64_t zeros = zeros_ - (value == 0 ? 1 : 0);
    const double nought = zeros > 0 ? 0 : 1;
    if (finite) return nought * infinite_ * (value == 0 ? ordinary_ : ordinary_ / value);
    return nought * ordinary_ * (infinities_ == 1 ? 1 : infinite_ * slope_sign(value));
  }

 private:
  double ordinary_, infinite_;
  std::int64_t zeros_, infinities_;
};

template <class T>
struct ReduceGradKernel : LineKernel<> {
  using A = Wide<T>;
  using Line = Span<const T, 1>;
  ReduceOp op;
  A alpha;
  const T* dy;
  const T* x;
  T* dx;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    team.each_line(this->lines(), [&](std::int64_t line) {
      const A slope = line < this->lines() ? widen(dy[line]) : A(0);
      one(team, this->template span<1>(x, line), this->template span<1>(dx, line), slope);
    });
  }

  // Writes f(x) for each element.
  template <class F>
  CS_BODY static void give(const Team& team, const Line& line, const Span<T, 1>& to, F&& f) {
    each_pack(team, line, [&](const Pack<T, 1>& pack, std::int64_t n) {
      *to.at(n) = static_cast<T>(f(widen(pack.at[0])));
    });
  }
  CS_BODY void one(Team& team, const Line& line, const Span<T, 1>& to, A slope) const {
    switch (op) {
      case ReduceOp::Product: {
        const ProductGrad product(team, line);
        return give(team, line, to, [&](A v) {
          return static_cast<A>(static_cast<double>(slope) * product.without(v));
        });
      }
      case ReduceOp::Max: return extreme(team, line, to, slope, true, false);
      case ReduceOp::Min: return extreme(team, line, to, slope, false, false);
      case ReduceOp::AbsMax: return extreme(team, line, to, slope, true, true);
      case ReduceOp::AbsMin: return extreme(team, line, to, slope, false, true);
      case ReduceOp::Variance:
      case ReduceOp::Deviation: return variance(team, line, to, slope);
      case ReduceOp::LogSumExp: {
        const A total = log_of(line_exponents(team, line));
        return give(team, line, to, [&](A v) { return slope * std::exp(v - total); });
      }
      case ReduceOp::NanSum:
        return give(team, line, to, [&](A v) { return is_nan(v) ? A(0) : slope; });
      case ReduceOp::AbsPower:
        return give(team, line, to, [&](A v) {
          const A own = power_slope(v, alpha);
          return own == 0 ? A(0) : slope * own;
        });
      default: return;
    }
  }
  CS_BODY static void extreme(Team& team, const Line& line, const Span<T, 1>& to, A slope,
                              bool largest, bool absolute) {
    const A best = line_extreme(team, line, largest, absolute);
    const auto hits = [&](A v) {
      const A value = absolute ? std::abs(v) : v;
      return value == best || (is_nan(value) && is_nan(best));
    };
    const A ties = line_sum(team, line, [&](A v) { return static_cast<A>(hits(v) ? 1 : 0); });
    give(team, line, to, [&](A v) {
      const A own = absolute ? slope_sign(v) : A(1);
      return (hits(v) ? own : A(0)) * (slope / ties);
    });
  }
  CS_BODY void variance(Team& team, const Line& line, const Span<T, 1>& to, A slope) const {
    const A left = static_cast<A>(line.packs) - alpha;
    const A divisor = left > 0 ? left : A(0);
    const A mean = line_mean(team, line);
    if (op == ReduceOp::Deviation) {
      const A deviation = std::sqrt(line_squares(team, line, mean) / divisor);
      slope = deviation == 0 ? A(0) : slope / (2 * deviation);
    }
    give(team, line, to, [&](A v) { return slope * 2 / divisor * (v - mean); });
  }
};

}  // namespace

void run(CudaDevice& device, const ReduceGrad& args) {
  CS_REQUIRE(args.op != ReduceOp::Sum && args.op != ReduceOp::Mean, "ReduceGrad of a sum");
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    ReduceGradKernel<T> kernel{};
    set_lines(kernel, args.outer, args.extent, args.inner);
    kernel.op = args.op;
    kernel.alpha = static_cast<Wide<T>>(args.alpha);
    kernel.dy = as<T>(args.dy);
    kernel.x = as<T>(args.x);
    kernel.dx = as<T>(args.dx);
    launch_lines(device, "reduce gradient", kernel);
  });
}

}  // namespace coshard::kernels::cuda
