#include <cmath>
#include <numbers>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

constexpr double kGeluTanhScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluTanhCubic = 0.044715;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf(double x) { return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_tanh_inner(double x) {
  return std::tanh(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x));
}

double apply(UnaryOp op, double x, double alpha) {
  switch (op) {
    case UnaryOp::Neg: return -x;
    case UnaryOp::Abs: return std::abs(x);
    case UnaryOp::Exp: return std::exp(x);
    case UnaryOp::Log: return std::log(x);
    case UnaryOp::Sqrt: return std::sqrt(x);
    case UnaryOp::Rsqrt: return 1 / std::sqrt(x);
    case UnaryOp::Tanh: return std::tanh(x);
    case UnaryOp::Sigmoid: return sigmoid(x);
    case UnaryOp::Relu: return x < 0 ? 0 : x;
    case UnaryOp::Silu: return x * sigmoid(x);
    case UnaryOp::Gelu: return x * normal_cdf(x);
    case UnaryOp::GeluTanh: return 0.5 * x * (1 + gelu_tanh_inner(x));
    case UnaryOp::AddScalar: return x + alpha;
    case UnaryOp::MulScalar: return x * alpha;
    case UnaryOp::PowScalar: return std::pow(x, alpha);
  }
  return x;
}

double slope(UnaryGradOp op, double x) {
  switch (op) {
    case UnaryGradOp::Silu: return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
    case UnaryGradOp::Gelu:
      return normal_cdf(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    case UnaryGradOp::GeluTanh: {
      const double t = gelu_tanh_inner(x);
      const double inner = kGeluTanhScale * (1 + 3 * kGeluTanhCubic * x * x);
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
    }
    case UnaryGradOp::Relu: return x > 0 ? 1 : 0;
  }
  return 0;
}

template <class T>
void integer_unary(const Unary& args) {
  const T* x = as<T>(args.x);
  T* y = as<T>(args.y);
  const T alpha = static_cast<T>(args.alpha);
  for (std::int64_t i = 0; i < args.count; ++i) {
    switch (args.op) {
      case UnaryOp::Neg: y[i] = -x[i]; break;
      case UnaryOp::Abs: y[i] = x[i] < 0 ? -x[i] : x[i]; break;
      case UnaryOp::Relu: y[i] = x[i] < 0 ? 0 : x[i]; break;
      case UnaryOp::AddScalar: y[i] = x[i] + alpha; break;
      case UnaryOp::MulScalar: y[i] = x[i] * alpha; break;
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
      y[i] = rounded<T>(apply(args.op, get(x, i), args.alpha));
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
      dx[i] = rounded<T>(get(dy, i) * slope(args.op, get(x, i)));
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
      y[i] = rounded<T>(apply(UnaryOp::Silu, get(a, i), 0) * get(b, i));
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
      as<T>(args.db)[i] = rounded<T>(grad * apply(UnaryOp::Silu, gate, 0));
    }
  });
}

}  // namespace coshard::kernels::reference
