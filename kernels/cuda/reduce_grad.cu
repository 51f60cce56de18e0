// The gradients of reductions along lines: first the line's statistics, then the gradient of each
// element. For a few long lines, ReduceDim's kernels compute the statistics.
#include "kernels/cuda/chunks.h"
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

// A product without one of its factors: finite nonzero factors are divided out, zeros and
// non-finite factors are counted.
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
  Chunks chunks;
  const Two<A>* found;  // of each line; null: not split, computed here
  const T* dy;
  const T* x;
  T* dx;

  CS_BODY void operator()(Block& block) const {
    Team team(block, this->shape);
    const std::int64_t all = this->lines() * chunks.count;
    team.each_line(all, [&](std::int64_t at) {
      const std::int64_t own = at % this->lines();
      const A slope = at < all ? widen(dy[own]) : A(0);
      const Line line = chunk_of<1>(*this, chunks, x, at);
      const Span<T, 1> to = chunk_of<1>(*this, chunks, dx, at);
      if (op == ReduceOp::Product) return product(team, line, to, slope);
      slopes(team, line, to, slope, found == nullptr ? find(team, line) : found[own]);
    });
  }

  // Writes f(x) for each element.
  template <class F>
  CS_BODY static void give(const Team& team, const Line& line, const Span<T, 1>& to, F&& f) {
    each_pack(team, line, [&](const Pack<T, 1>& pack, std::int64_t n) {
      *to.at(n) = static_cast<T>(f(widen(pack.at[0])));
    });
  }
  CS_BODY static void product(Team& team, const Line& line, const Span<T, 1>& to, A slope) {
    const ProductGrad all(team, line);
    give(team, line, to,
         [&](A v) { return static_cast<A>(static_cast<double>(slope) * all.without(v)); });
  }
  CS_BODY bool absolute() const { return op == ReduceOp::AbsMax || op == ReduceOp::AbsMin; }
  CS_BODY Two<A> find(Team& team, const Line& line) const {
    switch (op) {
      case ReduceOp::Max:
      case ReduceOp::AbsMax: return line_extremes(team, line, true, absolute());
      case ReduceOp::Min:
      case ReduceOp::AbsMin: return line_extremes(team, line, false, absolute());
      case ReduceOp::Variance: return {line_mean(team, line), 0};
      case ReduceOp::Deviation: {
        const A mean = line_mean(team, line);
        return {mean, line_squares(team, line, mean)};
      }
      case ReduceOp::LogSumExp: return line_exponents(team, line);
      default: return {0, 0};
    }
  }
  CS_BODY void slopes(const Team& team, const Line& line, const Span<T, 1>& to, A slope,
                      const Two<A>& of) const {
    switch (op) {
      case ReduceOp::NanSum:
        return give(team, line, to, [&](A v) { return is_nan(v) ? A(0) : slope; });
      case ReduceOp::AbsPower:
        return give(team, line, to, [&](A v) {
          const A own = power_slope(v, alpha);
          return own == 0 ? A(0) : slope * own;
        });
      case ReduceOp::LogSumExp: {
        const A total = log_of(of);
        return give(team, line, to, [&](A v) { return slope * std::exp(v - total); });
      }
      case ReduceOp::Variance:
      case ReduceOp::Deviation: return variance(team, line, to, slope, of);
      default: return extreme(team, line, to, slope, of);
    }
  }
  // Equal extremes share the gradient.
  CS_BODY void extreme(const Team& team, const Line& line, const Span<T, 1>& to, A slope,
                       const Two<A>& of) const {
    const A share = slope / of.b;
    give(team, line, to, [&](A v) {
      const A value = absolute() ? std::abs(v) : v;
      if (value != of.a && !(is_nan(value) && is_nan(of.a))) return A(0) * share;
      return (absolute() ? slope_sign(v) : A(1)) * share;
    });
  }
  CS_BODY void variance(const Team& team, const Line& line, const Span<T, 1>& to, A slope,
                        const Two<A>& of) const {
    const A left = static_cast<A>(this->extent) - alpha;
    const A divisor = left > 0 ? left : A(0);
    if (op == ReduceOp::Deviation) {
      const A deviation = std::sqrt(of.b / divisor);
      slope = deviation == 0 ? A(0) : slope / (2 * deviation);
    }
    give(team, line, to, [&](A v) { return slope * 2 / divisor * (v - of.a); });
  }
};

bool is_found(ReduceOp op) {
  return op != ReduceOp::NanSum && op != ReduceOp::AbsPower && op != ReduceOp::Product;
}

template <class T>
void reduce_grad(CudaDevice& device, const ReduceGrad& args) {
  using A = Wide<T>;
  ReduceGradKernel<T> kernel{};
  set_lines(kernel, args.outer, args.extent, args.inner);
  kernel.op = args.op;
  kernel.alpha = static_cast<A>(args.alpha);
  kernel.dy = as<T>(args.dy);
  kernel.x = as<T>(args.x);
  kernel.dx = as<T>(args.dx);
  kernel.chunks = {1, args.extent};
  std::shared_ptr<Buffer> found;
  if (args.op != ReduceOp::Product)
    kernel.chunks = chunks_for(device, args.outer, args.extent, args.inner, 1);
  if (kernel.chunks.count > 1 && is_found(args.op)) {
    const auto lines = static_cast<std::size_t>(args.outer * args.inner);
    found = device.make_buffer(lines * sizeof(Two<A>));
    kernel.found = static_cast<const Two<A>*>(found->data());
    find_lines(
        device,
        {args.op, args.dtype, args.outer, args.extent, args.inner, args.x, nullptr, args.alpha},
        found->data());
  }
  launch_lines(device, "reduce gradient", kernel, 1, kernel.chunks.count);
}

}  // namespace

void run(CudaDevice& device, const ReduceGrad& args) {
  CS_REQUIRE(args.op != ReduceOp::Sum && args.op != ReduceOp::Mean,
             "reduce_grad does not support sum and mean");
  with_floating(args.dtype, [&](auto tag) { reduce_grad<decltype(tag)>(device, args); });
}

}  // namespace coshard::kernels::cuda
