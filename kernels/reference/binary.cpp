#include <cmath>
#include <limits>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

// Division by zero of an integer is an error of the caller; maximum and minimum carry NaN on.
template <class T>
T apply(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::Add: return a + b;
    case BinaryOp::Sub: return a - b;
    case BinaryOp::Mul: return a * b;
    case BinaryOp::Div:
      if constexpr (std::is_integral_v<T>) CS_REQUIRE(b != 0, "integer division of ", a, " by 0");
      return a / b;
    case BinaryOp::Maximum: return a != a || a > b ? a : b;
    case BinaryOp::Minimum: return a != a || a < b ? a : b;
  }
  return a;
}

template <class T, class Compute>
void strided(const Binary& args) {
  T* out = as<T>(args.out.data);
  const T* a = as<T>(static_cast<const void*>(args.a.data));
  const T* b = as<T>(static_cast<const void*>(args.b.data));
  const auto alpha = static_cast<Compute>(args.alpha);
  walk<3>(args.out, {&args.out, &args.a, &args.b}, [&](const auto& at) {
    const Compute value =
        apply(args.op, static_cast<Compute>(a[at[1]]), alpha * static_cast<Compute>(b[at[2]]));
    if constexpr (std::is_integral_v<T>) {
      out[at[0]] = value;
    } else {
      out[at[0]] = rounded<T>(value);
    }
  });
}

}  // namespace

void run(const Binary& args) {
  switch (args.out.dtype) {
    case DType::I64: return strided<std::int64_t, std::int64_t>(args);
    case DType::I32: return strided<std::int32_t, std::int32_t>(args);
    default:
      return with_floating(args.out.dtype, [&](auto tag) { strided<decltype(tag), double>(args); });
  }
}

}  // namespace coshard::kernels::reference
