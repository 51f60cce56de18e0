// Elementwise functions of one tensor and their gradients, and the SwiGLU pair.
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/vector_math.h"
#include "kernels/elementwise/unary_switch.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

using elementwise::Silu;
constexpr VectorMath kMath;

template <class F, class T>
void value_of(const Registers& registers) {
  const Vec a = all(registers.a), b = all(registers.b);
  T* y = registers.of<T>(0);
  const T* x = registers.of<const T>(1);
  const std::int64_t count = registers.count;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    store(y + i, F::value(kMath, load(x + i), a, b));
  }
}

template <class F, class T>
void gradient_of(const Registers& registers) {
  const Vec a = all(registers.a), b = all(registers.b);
  T* dx = registers.of<T>(0);
  const T* dy = registers.of<const T>(1);
  const T* x = registers.of<const T>(2);
  const std::int64_t count = registers.count;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Vec grad = load(dy + i);
    store(dx + i, elementwise::gradient<F>(kMath, grad, load(x + i), a, b));
  }
}

template <class T>
void swiglu(const Registers& registers) {
  T* y = registers.of<T>(0);
  const T* a = registers.of<const T>(1);
  const T* b = registers.of<const T>(2);
  const std::int64_t count = registers.count;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Vec gate = load(a + i);
    store(y + i, Silu::value(kMath, gate, gate, gate) * load(b + i));
  }
}

template <class T>
void swiglu_gradient(const Registers& registers) {
  T* da = registers.of<T>(0);
  T* db = registers.of<T>(1);
  const T* dy = registers.of<const T>(2);
  const T* a = registers.of<const T>(3);
  const T* b = registers.of<const T>(4);
  const std::int64_t count = registers.count;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Vec grad = load(dy + i);
    const Vec gate = load(a + i);
    const Vec up = load(b + i);
    store(da + i, grad * up * Silu::derivative(kMath, gate, gate, gate));
    store(db + i, grad * Silu::value(kMath, gate, gate, gate));
  }
}

}  // namespace

void run(const Unary& args) {
  Body body = nullptr;
  with_stored(args.dtype, [&]<class T>(T) {
    with_function(args.op, [&]<class F>(F) {
      if constexpr (F::kVectorValue) body = value_of<F, T>;
    });
  });
  run_contiguous(body, args.dtype, args.count, 1, {args.y, args.x}, static_cast<Real>(args.alpha),
                 static_cast<Real>(args.beta));
}

void run(const UnaryGrad& args) {
  Body body = nullptr;
  with_stored(args.dtype, [&]<class T>(T) {
    with_function(args.op, [&]<class F>(F) {
      if constexpr (F::kVectorDerivative) body = gradient_of<F, T>;
    });
  });
  run_contiguous(body, args.dtype, args.count, 1, {args.dx, args.dy, args.x},
                 static_cast<Real>(args.alpha), static_cast<Real>(args.beta));
}

void run(const SwiGlu& args) {
  with_stored(args.dtype, [&]<class T>(T) {
    run_contiguous(swiglu<T>, args.dtype, args.count, 1, {args.y, args.a, args.b});
  });
}

void run(const SwiGluGrad& args) {
  with_stored(args.dtype, [&]<class T>(T) {
    run_contiguous(swiglu_gradient<T>, args.dtype, args.count, 2,
                   {args.da, args.db, args.dy, args.a, args.b});
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
