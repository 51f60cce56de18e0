// Functions of one element and their gradients, and the SwiGLU pair.
#include "kernels/convert.h"
#include "kernels/elementwise/scalar_math.h"
#include "kernels/elementwise/unary_switch.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

using elementwise::ScalarMath, elementwise::Silu;
constexpr ScalarMath<double> kMath;

template <class T>
void integer_unary(const Unary& args) {
  if (!takes_integers(args.op))
    fail(ErrorKind::Unsupported, str_cat(to_string(args.op), " does not support ", args.dtype));
  const T* x = as<T>(args.x);
  T* y = as<T>(args.y);
  const T a = integer_bound<T>(args.alpha), b = integer_bound<T>(args.beta);
  with_function(args.op, [&]<class F>(F) {
    if constexpr (elementwise::TakesIntegers<F>)
      for (std::int64_t i = 0; i < args.count; ++i) y[i] = F::of_integer(x[i], a, b);
  });
}

}  // namespace

void run(const Unary& args) {
  if (args.dtype == DType::I64) return integer_unary<std::int64_t>(args);
  if (args.dtype == DType::I32) return integer_unary<std::int32_t>(args);
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    T* y = as<T>(args.y);
    with_function(args.op, [&]<class F>(F) {
      for (std::int64_t i = 0; i < args.count; ++i)
        y[i] = rounded<T>(F::value(kMath, get(x, i), args.alpha, args.beta));
    });
  });
}

void run(const UnaryGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    const T* dy = as<T>(args.dy);
    T* dx = as<T>(args.dx);
    with_function(args.op, [&]<class F>(F) {
      for (std::int64_t i = 0; i < args.count; ++i)
        dx[i] = rounded<T>(
            elementwise::gradient<F>(kMath, get(dy, i), get(x, i), args.alpha, args.beta));
    });
  });
}

void run(const SwiGlu& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* a = as<T>(args.a);
    const T* b = as<T>(args.b);
    T* y = as<T>(args.y);
    for (std::int64_t i = 0; i < args.count; ++i) {
      y[i] = rounded<T>(Silu::value(kMath, get(a, i), 0., 0.) * get(b, i));
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
      as<T>(args.da)[i] = rounded<T>(grad * up * Silu::derivative(kMath, gate, 0., 0.));
      as<T>(args.db)[i] = rounded<T>(grad * Silu::value(kMath, gate, 0., 0.));
    }
  });
}

}  // namespace coshard::kernels::reference
