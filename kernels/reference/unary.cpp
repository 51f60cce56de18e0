#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/convert.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

constexpr double kGeluTanhScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluTanhCubic = 0.044715;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double normal_cdf(double x) { return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_tanh_inner(double x) {
  return std::tanh(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x));
}

double clamped(double x, double low, double high) {
  if (x != x) return x;
  const double raised = low != low || low > x ? low : x;
  return high != high || high < raised ? high : raised;
}

double apply(const Unary& f, double x) {
  switch (f.op) {
    case UnaryOp::Neg: return -x;
    case UnaryOp::Abs: return std::abs(x);
    case UnaryOp::Exp: return std::exp(x);
    case UnaryOp::Log: return std::log(x);
    case UnaryOp::Sqrt: return std::sqrt(x);
    case UnaryOp::Rsqrt: return 1 / std::sqrt(x);
    case UnaryOp::Tanh: return std::tanh(x);
    case UnaryOp::Sigmoid: return sigmoid(x);
    case UnaryOp::Relu: return x < 0 ? 0 : x;
    case UnaryOp::Silu: return silu(x);
    case UnaryOp::Gelu: return x * normal_cdf(x);
    case UnaryOp::GeluTanh: return 0.5 * x * (1 + gelu_tanh_inner(x));
    case UnaryOp::Square: return x * x;
    case UnaryOp::Reciprocal: return 1 / x;
    case UnaryOp::Sign: return (x > 0) - (x < 0);
    case UnaryOp::Erf: return std::erf(x);
    case UnaryOp::LeakyRelu: return x > 0 ? x : x * f.alpha;
    case UnaryOp::Clamp: return clamped(x, f.alpha, f.beta);
    case UnaryOp::AddScalar: return x + f.alpha;
    case UnaryOp::MulScalar: return x * f.alpha;
    case UnaryOp::PowScalar: return std::pow(x, f.alpha);
    case UnaryOp::Sin: return std::sin(x);
    case UnaryOp::Cos: return std::cos(x);
    case UnaryOp::Floor: return std::floor(x);
    case UnaryOp::Log1p: return std::log1p(x);
    case UnaryOp::Expm1: return std::expm1(x);
    case UnaryOp::Softplus: return x > 20 ? x : std::log1p(std::exp(x));
  }
  return x;
}

double slope(UnaryGradOp op, double x, double alpha = 0) {
  switch (op) {
    case UnaryGradOp::Silu: return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case UnaryGradOp::Gelu:
      return normal_cdf(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    case UnaryGradOp::GeluTanh: {
      const double t = gelu_tanh_inner(x);
      const double inner = kGeluTanhScale * (1 + 3 * kGeluTanhCubic * x * x);
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
    }
    case UnaryGradOp::Abs: return (x > 0) - (x < 0);
    case UnaryGradOp::Exp: return x;
    case UnaryGradOp::Expm1: return x + 1;
    case UnaryGradOp::Log: return 1 / x;
    case UnaryGradOp::Sqrt: return 0.5 / x;
    case UnaryGradOp::Rsqrt: return -0.5 * x * x * x;
    case UnaryGradOp::Tanh: return 1 - x * x;
    case UnaryGradOp::Sigmoid: return x * (1 - x);
    case UnaryGradOp::Softplus: return x > 20 ? 1 : sigmoid(x);
    case UnaryGradOp::Square: return 2 * x;
    case UnaryGradOp::Reciprocal: return -x * x;
    case UnaryGradOp::Erf: return 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x);
    case UnaryGradOp::LeakyRelu: return x > 0 ? 1 : alpha;
    case UnaryGradOp::Log1p: return 1 / (1 + x);
    case UnaryGradOp::PowScalar: return alpha == 0 ? 0 : alpha * std::pow(x, alpha - 1);
    case UnaryGradOp::Sin: return std::cos(x);
    case UnaryGradOp::Cos: return -std::sin(x);
    default: return 0;
  }
}

// The gradients that are there or not, whatever dy is; the others are products with a slope.
double gradient(const UnaryGrad& f, double dy, double x) {
  switch (f.op) {
    case UnaryGradOp::Relu: return x <= 0 ? 0 : dy;
    case UnaryGradOp::Clamp: return x >= f.alpha && x <= f.beta ? dy : 0;
    default: return dy * slope(f.op, x, f.alpha);
  }
}

template <class T>
void integer_unary(const Unary& args) {
  const T* x = as<T>(args.x);
  T* y = as<T>(args.y);
  const T alpha = integer_bound<T>(args.alpha);
  const T beta = integer_bound<T>(args.beta);
  for (std::int64_t i = 0; i < args.count; ++i) {
    switch (args.op) {
      case UnaryOp::Neg: y[i] = -x[i]; break;
      case UnaryOp::Abs: y[i] = x[i] < 0 ? -x[i] : x[i]; break;
      case UnaryOp::Relu: y[i] = x[i] < 0 ? 0 : x[i]; break;
      case UnaryOp::Square: y[i] = x[i] * x[i]; break;
      case UnaryOp::Sign: y[i] = (x[i] > 0) - (x[i] < 0); break;
      case UnaryOp::Floor: y[i] = x[i]; break;
      case UnaryOp::Clamp: y[i] = std::min(std::max(x[i], alpha), beta); break;
      case UnaryOp::AddScalar: y[i] = x[i] + alpha; break;
      case UnaryOp::MulScalar: y[i] = x[i] * alpha; break;
      case UnaryOp::PowScalar: y[i] = integer_power(x[i], alpha); break;
      default: fail(ErrorKind::Unsupported, cat("unary op ", int(args.op), " of ", args.dtype));
    }
  }
}

}  // namespace

void run(const Unary& args) {
  if (args.dtype == DType::I64) return integer_unary<std::int64_t>(args);
  if (args.dtype == DType::I32) return integer_unary<std::int32_t>(args);
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    T* y = as<T>(args.y);
    for (std::int64_t i = 0; i < args.count; ++i) {
      y[i] = rounded<T>(apply(args, get(x, i)));
    }
  });
}

void run(const UnaryGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    const T* dy = as<T>(args.dy);
    T* dx = as<T>(args.dx);
    for (std::int64_t i = 0; i < args.count; ++i) {
      dx[i] = rounded<T>(gradient(args, get(dy, i), get(x, i)));
    }
  });
}

void run(const SwiGlu& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* a = as<T>(args.a);
    const T* b = as<T>(args.b);
    T* y = as<T>(args.y);
    for (std::int64_t i = 0; i < args.count; ++i) {
      y[i] = rounded<T>(silu(get(a, i)) * get(b, i));
    }
  });
}

void run(const SwiGluGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* dy = as<T>(args.dy);
    const T* a = as<T>(args.a);
    const T* b = as<T>(args.b);
    for (std::int64_t i = 0; i < args.count; ++i) {
      const double grad = get(dy, i);
      const double gate = get(a, i);
      const double up = get(b, i);
      as<T>(args.da)[i] = rounded<T>(grad * up * slope(UnaryGradOp::Silu, gate));
      as<T>(args.db)[i] = rounded<T>(grad * silu(gate));
    }
  });
}

}  // namespace coshard::kernels::reference
