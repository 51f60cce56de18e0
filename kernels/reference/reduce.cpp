#include <cmath>
#include <limits>

#include "kernels/reference/lines.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels::reference {
namespace {

template <class T>
double reduce_line(ReduceOp op, double alpha, const Line<T>& x) {
  switch (op) {
    case ReduceOp::Sum: return line_sum(x);
    case ReduceOp::Mean: return line_mean(x);
    case ReduceOp::Max: return line_extreme(x, true, false);
    case ReduceOp::Min: return line_extreme(x, false, false);
    case ReduceOp::AbsMax: return line_extreme(x, true, true);
    case ReduceOp::AbsMin: return line_extreme(x, false, true);
    case ReduceOp::Variance: return line_variance(x, alpha);
    case ReduceOp::Deviation: return std::sqrt(line_variance(x, alpha));
    case ReduceOp::LogSumExp: return line_log_sum_exp(x);
    default: break;
  }
  double result = op == ReduceOp::Product ? 1 : 0;
  for (std::int64_t i = 0; i < x.extent; ++i) {
    const double value = x.get(i);
    if (op == ReduceOp::Product) result *= value;
    if (op == ReduceOp::NanSum) result += std::isnan(value) ? 0 : value;
    if (op == ReduceOp::AbsPower) result += abs_power(value, alpha);
  }
  return result;
}

// Integers and booleans.
template <class T>
T reduce_integers(ReduceOp op, const T* x, std::int64_t extent, std::int64_t stride) {
  const bool extreme = op == ReduceOp::Max || op == ReduceOp::Min;
  const bool sums = op == ReduceOp::Sum || op == ReduceOp::Product;
  CS_REQUIRE(extreme || (sums && !std::is_same_v<T, bool>), "reduction ", static_cast<int>(op),
             " does not support ", dtype_of<T>);
  using Limits = std::numeric_limits<T>;
  T result = op == ReduceOp::Max   ? Limits::lowest()
             : op == ReduceOp::Min ? Limits::max()
                                   : static_cast<T>(op == ReduceOp::Product);
  for (std::int64_t i = 0; i < extent; ++i) {
    const T value = x[i * stride];
    if (op == ReduceOp::Sum) result = static_cast<T>(result + value);
    if (op == ReduceOp::Product) result = static_cast<T>(result * value);
    if (op == ReduceOp::Max && value > result) result = value;
    if (op == ReduceOp::Min && value < result) result = value;
  }
  return result;
}

template <class T>
void reduce_integer_lines(const ReduceDim& args) {
  each_line(args, [&](std::int64_t first, std::int64_t line) {
    as<T>(args.y)[line] = reduce_integers(args.op, as<T>(args.x) + first, args.extent, args.inner);
  });
}

}  // namespace

void run(const ReduceDim& args) {
  switch (args.dtype) {
    case DType::I64: return reduce_integer_lines<std::int64_t>(args);
    case DType::I32: return reduce_integer_lines<std::int32_t>(args);
    case DType::Bool: return reduce_integer_lines<bool>(args);
    default: break;
  }
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_line(args, [&](std::int64_t first, std::int64_t line) {
      const Line<T> x{as<T>(args.x) + first, args.extent, args.inner};
      as<T>(args.y)[line] = rounded<T>(reduce_line(args.op, args.alpha, x));
    });
  });
}

void run(const PowSum& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    double result = 0;
    for (std::int64_t i = 0; i < args.count; ++i) {
      const double size = std::abs(get(x, i));
      if (args.p == 0) {
        if (size > result || std::isnan(size)) result = size;
        if (std::isnan(result)) break;
      } else {
        result += args.p == 2 ? size * size : std::pow(size, args.p);
      }
    }
    *args.result = result;
  });
}

}  // namespace coshard::kernels::reference
