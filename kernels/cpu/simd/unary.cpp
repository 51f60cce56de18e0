// Elementwise functions of one tensor and their gradients, and the SwiGLU pair.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

constexpr float kGeluTanhScale = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kGeluTanhCubic = 0.044715F;
constexpr float kRootHalf = 0.7071067812F;

COSHARD_INLINE Vec normal_cdf(Vec x) { return 0.5F + 0.5F * error_function(x * kRootHalf); }
COSHARD_INLINE Vec gelu_tanh_inner(Vec x) {
  return hyperbolic_tangent(kGeluTanhScale * (x + kGeluTanhCubic * x * x * x));
}

// f(x, dy) -> dx
template <class F>
void map_both(const UnaryGrad& args, F f) {
  with_short_float(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    const T* dy = as<T>(args.dy);
    T* dx = as<T>(args.dx);
    parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      each_register(
          begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            lanes.store(dx + i, f(lanes.load(x + i), lanes.load(dy + i)));
          });
    });
  });
}

template <class F>
void map(const Unary& args, F f) {
  with_short_float(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    T* y = as<T>(args.y);
    parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      each_register(
          begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            lanes.store(y + i, f(lanes.load(x + i)));
          });
    });
  });
}

template <class F>
void map_grad(const UnaryGrad& args, F slope) {
  map_both(
      args, [slope](Vec x, Vec dy) __attribute__((always_inline)) { return dy * slope(x); });
}

COSHARD_INLINE Vec sign(Vec x) {
  return select(x > Vec{}, all(1.0F), select(x < Vec{}, all(-1.0F), Vec{}));
}

}  // namespace

// PowScalar reaches this table only with alpha 2; what comes after it not at all.
void run(const Unary& args) {
  const auto alpha = static_cast<float>(args.alpha);
  const auto beta = static_cast<float>(args.beta);
  switch (args.op) {
    case UnaryOp::Neg: return map(args, [](Vec x) { return -x; });
    case UnaryOp::Abs: return map(args, [](Vec x) { return absolute(x); });
    case UnaryOp::Exp: return map(args, [](Vec x) { return exponential(x); });
    case UnaryOp::Log: return map(args, [](Vec x) { return logarithm(x); });
    case UnaryOp::Sqrt: return map(args, [](Vec x) { return square_root(x); });
    case UnaryOp::Rsqrt: return map(args, [](Vec x) { return 1.0F / square_root(x); });
    case UnaryOp::Tanh: return map(args, [](Vec x) { return hyperbolic_tangent(x); });
    case UnaryOp::Sigmoid: return map(args, [](Vec x) { return sigmoid(x); });
    case UnaryOp::Relu: return map(args, [](Vec x) { return larger(Vec{}, x); });
    case UnaryOp::Silu: return map(args, [](Vec x) { return x / (1.0F + exponential(-x)); });
    case UnaryOp::Gelu: return map(args, [](Vec x) { return x * normal_cdf(x); });
    case UnaryOp::GeluTanh:
      return map(args, [](Vec x) { return 0.5F * x * (1.0F + gelu_tanh_inner(x)); });
    case UnaryOp::Square: return map(args, [](Vec x) { return x * x; });
    case UnaryOp::Reciprocal: return map(args, [](Vec x) { return 1.0F / x; });
    case UnaryOp::Sign: return map(args, [](Vec x) { return sign(x); });
    case UnaryOp::Erf: return map(args, [](Vec x) { return error_function(x); });
    case UnaryOp::LeakyRelu:
      return map(args, [alpha](Vec x) { return select(x > Vec{}, x, x * alpha); });
    case UnaryOp::Clamp:
      return map(args, [alpha, beta](Vec x) { return minimum(maximum(x, all(alpha)), all(beta)); });
    case UnaryOp::AddScalar: return map(args, [alpha](Vec x) { return x + alpha; });
    case UnaryOp::MulScalar: return map(args, [alpha](Vec x) { return x * alpha; });
    case UnaryOp::PowScalar: return map(args, [](Vec x) { return x * x; });
    default: return;
  }
}

// PowScalar and what comes after it have no body here.
void run(const UnaryGrad& args) {
  const auto alpha = static_cast<float>(args.alpha);
  const auto beta = static_cast<float>(args.beta);
  switch (args.op) {
    case UnaryGradOp::Silu:
      return map_grad(args, [](Vec x) {
        const Vec s = sigmoid(x);
        return s * (1.0F + x * (1.0F - s));
      });
    case UnaryGradOp::Gelu:
      return map_grad(args, [](Vec x) {
        return normal_cdf(x) + x * exponential(-0.5F * x * x) * 0.3989422804F;
      });
    case UnaryGradOp::GeluTanh:
      return map_grad(args, [](Vec x) {
        const Vec t = gelu_tanh_inner(x);
        const Vec inner = kGeluTanhScale * (1.0F + 3.0F * kGeluTanhCubic * x * x);
        return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner;
      });
    case UnaryGradOp::Relu:
      return map_both(args, [](Vec x, Vec dy) { return select(x <= Vec{}, Vec{}, dy); });
    case UnaryGradOp::Abs: return map_grad(args, [](Vec x) { return sign(x); });
    case UnaryGradOp::Exp: return map_grad(args, [](Vec y) { return y; });
    case UnaryGradOp::Expm1: return map_grad(args, [](Vec y) { return y + 1.0F; });
    case UnaryGradOp::Log: return map_grad(args, [](Vec x) { return 1.0F / x; });
    case UnaryGradOp::Sqrt: return map_grad(args, [](Vec y) { return 0.5F / y; });
    case UnaryGradOp::Rsqrt: return map_grad(args, [](Vec y) { return -0.5F * y * y * y; });
    case UnaryGradOp::Tanh: return map_grad(args, [](Vec y) { return 1.0F - y * y; });
    case UnaryGradOp::Sigmoid: return map_grad(args, [](Vec y) { return y * (1.0F - y); });
    case UnaryGradOp::Softplus: return map_grad(args, [](Vec x) { return sigmoid(x); });
    case UnaryGradOp::Square: return map_grad(args, [](Vec x) { return 2.0F * x; });
    case UnaryGradOp::Reciprocal: return map_grad(args, [](Vec y) { return -y * y; });
    case UnaryGradOp::Erf:
      return map_grad(args, [](Vec x) { return 1.1283791671F * exponential(-x * x); });
    case UnaryGradOp::LeakyRelu:
      return map_grad(args, [alpha](Vec x) { return select(x > Vec{}, all(1.0F), all(alpha)); });
    case UnaryGradOp::Clamp:
      return map_both(args, [alpha, beta](Vec x, Vec dy) {
        return select((x >= all(alpha)) & (x <= all(beta)), dy, Vec{});
      });
    case UnaryGradOp::Log1p: return map_grad(args, [](Vec x) { return 1.0F / (1.0F + x); });
    default: return;
  }
}

void run(const SwiGlu& args) {
  with_short_float(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* a = as<T>(args.a);
    const T* b = as<T>(args.b);
    T* y = as<T>(args.y);
    parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      each_register(
          begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            const Vec gate = lanes.load(a + i);
            lanes.store(y + i, gate * lanes.load(b + i) / (1.0F + exponential(-gate)));
          });
    });
  });
}

void run(const SwiGluGrad& args) {
  with_short_float(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* dy = as<T>(args.dy);
    const T* a = as<T>(args.a);
    const T* b = as<T>(args.b);
    T* da = as<T>(args.da);
    T* db = as<T>(args.db);
    parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      each_register(
          begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            const Vec grad = lanes.load(dy + i);
            const Vec gate = lanes.load(a + i);
            const Vec up = lanes.load(b + i);
            const Vec s = sigmoid(gate);
            lanes.store(da + i, grad * up * (s * (1.0F + gate * (1.0F - s))));
            lanes.store(db + i, grad * (gate * s));
          });
    });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
