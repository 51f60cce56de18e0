// Elementwise functions of one tensor and their gradients, and the SwiGLU pair.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"
#include "kernels/cpu/simd/vector_math.h"
#include "kernels/elementwise/unary_switch.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

using elementwise::Silu;
constexpr VectorMath kMath;

}  // namespace

void run(const Unary& args) {
  const Vec a = all(static_cast<Real>(args.alpha)), b = all(static_cast<Real>(args.beta));
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    T* y = as<T>(args.y);
    with_function(args.op, [&]<class F>(F) {
      if constexpr (F::kVectorValue)
        parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
          each_register(
              begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
                lanes.store(y + i, F::value(kMath, lanes.load(x + i), a, b));
              });
        });
    });
  });
}

void run(const UnaryGrad& args) {
  const Vec a = all(static_cast<Real>(args.alpha)), b = all(static_cast<Real>(args.beta));
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    const T* dy = as<T>(args.dy);
    T* dx = as<T>(args.dx);
    with_function(args.op, [&]<class F>(F) {
      if constexpr (F::kVectorDerivative)
        parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
          each_register(
              begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
                const Vec grad = lanes.load(dy + i);
                lanes.store(dx + i, elementwise::gradient<F>(kMath, grad, lanes.load(x + i), a, b));
              });
        });
    });
  });
}

void run(const SwiGlu& args) {
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* a = as<T>(args.a);
    const T* b = as<T>(args.b);
    T* y = as<T>(args.y);
    parallel(args.count, kGrain, [=](std::int64_t begin, std::int64_t end) {
      each_register(
          begin, end, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            const Vec gate = lanes.load(a + i);
            lanes.store(y + i, Silu::value(kMath, gate, gate, gate) * lanes.load(b + i));
          });
    });
  });
}

void run(const SwiGluGrad& args) {
  with_stored(args.dtype, [&](auto tag) {
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
            lanes.store(da + i, grad * up * Silu::derivative(kMath, gate, gate, gate));
            lanes.store(db + i, grad * Silu::value(kMath, gate, gate, gate));
          });
    });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
