#include <cmath>
#include <limits>

#include "kernels/reference/lines.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels::reference {
namespace {

// log(exp(a) + exp(b))
double log_add_exp(double a, double b) {
  const double high = std::isnan(a) || a > b ? a : b;
  const double low = std::isnan(a) || a > b ? b : a;
  if (std::isinf(high) && (high == low || high > 0)) return high;
  return high + std::log1p(std::exp(low - high));
}

template <class A>
A step(ScanOp op, A before, A value) {
  switch (op) {
    case ScanOp::Sum: return before + value;
    case ScanOp::Product: return before * value;
    case ScanOp::LogSumExp:
      if constexpr (std::is_floating_point_v<A>) return log_add_exp(before, value);
      fail(ErrorKind::Unsupported, "logcumsumexp does not support integers");
    // NaN is sticky; of equal elements the later one wins
    case ScanOp::Max:
      return before != before || (value == value && value < before) ? before : value;
    case ScanOp::Min:
      return before != before || (value == value && value > before) ? before : value;
  }
  return value;
}

// Accumulates in A.
template <class T, class A>
void scan_lines(const Scan& args) {
  const bool extreme = args.op == ScanOp::Max || args.op == ScanOp::Min;
  auto* indices = as<std::int64_t>(args.indices);
  each_line(args, [&](std::int64_t first, std::int64_t) {
    A result{};
    std::int64_t where = 0;
    for (std::int64_t n = 0; n < args.extent; ++n) {
      const std::int64_t e = args.reverse ? args.extent - 1 - n : n;
      const std::int64_t at = first + e * args.inner;
      const A value = static_cast<A>(as<T>(args.x)[at]);
      const A before = result;
      result = n == 0 ? value : step(args.op, before, value);
      const bool took = n == 0 || value != value || (before == before && result == value);
      if (took) where = e;
      if constexpr (std::is_floating_point_v<A>) {
        as<T>(args.y)[at] = rounded<T>(result);
      } else {
        as<T>(args.y)[at] = static_cast<T>(result);
      }
      if (extreme && indices != nullptr) indices[at] = where;
    }
  });
}

// dx[k] = sum over j >= k of dy[j] * the product of x[0..j] without x[k]. Past the first zero every
// product that contains it is 0; only those for k at that zero omit it.
template <class T>
void product_scan_grad(const ScanGrad& args, std::int64_t first) {
  const std::int64_t n = args.extent;
  const auto at = [&](std::int64_t e) { return first + e * args.inner; };
  const auto x = [&](std::int64_t e) { return get(as<T>(args.x), at(e)); };
  const auto dy = [&](std::int64_t e) { return get(as<T>(args.dy), at(e)); };
  const auto give = [&](std::int64_t e, double value) {
    as<T>(args.dx)[at(e)] = rounded<T>(value);
  };
  std::int64_t zero = 0;
  double before = 1;
  while (zero < n && x(zero) != 0) before *= x(zero++);
  for (std::int64_t e = zero; e < n; ++e) give(e, 0);
  if (zero < n) {
    double sum = 0;
    double product = before;
    for (std::int64_t e = zero; e < n; ++e) {
      if (e > zero) product *= x(e);
      sum += dy(e) * product;
    }
    give(zero, sum);
  }
  double sum = 0;
  double product = before;  // of x[0..e]
  for (std::int64_t e = zero; e-- > 0;) {
    sum += dy(e) * product;
    give(e, sum / x(e));
    product /= x(e);
  }
}

// y does not decrease from left to right, so no exponential below exceeds 1.
template <class T>
void log_sum_exp_scan_grad(const ScanGrad& args, std::int64_t first) {
  double sum = 0;
  double later = 0;
  for (std::int64_t e = args.extent; e-- > 0;) {
    const std::int64_t at = first + e * args.inner;
    const double y = get(as<T>(args.y), at);
    const bool nothing = y == -std::numeric_limits<double>::infinity();
    if (e + 1 < args.extent && !nothing) sum *= std::exp(y - later);
    sum = nothing ? 0 : sum + get(as<T>(args.dy), at);
    later = y;
    as<T>(args.dx)[at] = rounded<T>(nothing ? 0 : sum * std::exp(get(as<T>(args.x), at) - y));
  }
}

}  // namespace

void run(const Scan& args) {
  switch (args.dtype) {
    case DType::I64: return scan_lines<std::int64_t, std::int64_t>(args);
    case DType::I32: return scan_lines<std::int32_t, std::int64_t>(args);
    case DType::Bool: return scan_lines<bool, std::int64_t>(args);
    default:
      return with_floating(args.dtype, [&](auto tag) { scan_lines<decltype(tag), double>(args); });
  }
}

void run(const ScanGrad& args) {
  CS_REQUIRE(args.op == ScanOp::Product || args.op == ScanOp::LogSumExp,
             "scan_grad does not support scan ", static_cast<int>(args.op));
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_line(args, [&](std::int64_t first, std::int64_t) {
      if (args.op == ScanOp::Product) return product_scan_grad<T>(args, first);
      log_sum_exp_scan_grad<T>(args, first);
    });
  });
}

}  // namespace coshard::kernels::reference
