#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The line of `extent` elements that are `stride` apart; NaN wins over every maximum and minimum.
template <class T>
double reduce_line(ReduceOp op, const T* x, std::int64_t extent, std::int64_t stride) {
  double sum = 0;
  double high = -kInfinity;
  double low = kInfinity;
  for (std::int64_t i = 0; i < extent; ++i) {
    const double value = get(x, i * stride);
    sum += value;
    if (value > high || std::isnan(value)) high = value;
    if (value < low || std::isnan(value)) low = value;
    if (std::isnan(sum) && std::isnan(value) && op != ReduceOp::Sum) return value;
  }
  switch (op) {
    case ReduceOp::Sum: return sum;
    case ReduceOp::Mean: return sum / static_cast<double>(extent);
    case ReduceOp::Max: return high;
    case ReduceOp::Min: return low;
  }
  return sum;
}

template <class T>
T reduce_integers(ReduceOp op, const T* x, std::int64_t extent, std::int64_t stride) {
  CS_REQUIRE(op == ReduceOp::Sum || extent > 0, "integer max or min over 0 elements");
  CS_REQUIRE(op != ReduceOp::Mean, "mean of ", dtype_of<T>, " elements");
  T result = op == ReduceOp::Sum ? T(0) : x[0];
  for (std::int64_t i = 0; i < extent; ++i) {
    const T value = x[i * stride];
    if (op == ReduceOp::Sum) result += value;
    if (op == ReduceOp::Max && value > result) result = value;
    if (op == ReduceOp::Min && value < result) result = value;
  }
  return result;
}

template <class T, class F>
void each_line(const ReduceDim& args, F&& line) {
  for (std::int64_t o = 0; o < args.outer; ++o) {
    for (std::int64_t i = 0; i < args.inner; ++i) {
      const T* x = as<T>(args.x) + o * args.extent * args.inner + i;
      as<T>(args.y)[o * args.inner + i] = line(x);
    }
  }
}

}  // namespace

void run(const ReduceDim& args) {
  const auto integers = [&](auto tag) {
    using T = decltype(tag);
    each_line<T>(args,
                 [&](const T* x) { return reduce_integers(args.op, x, args.extent, args.inner); });
  };
  if (args.dtype == DType::I64) return integers(std::int64_t{});
  if (args.dtype == DType::I32) return integers(std::int32_t{});
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_line<T>(args, [&](const T* x) {
      return rounded<T>(reduce_line(args.op, x, args.extent, args.inner));
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
