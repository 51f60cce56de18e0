#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

// With the sign of b.
template <class T>
T remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    CS_REQUIRE(b != 0, "integer remainder of ", a, " by 0");
    const T rest = b == -1 ? 0 : a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    const T rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
}

// The operations that only floats, or that floats and integers do otherwise.
template <class T>
T special(BinaryOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (op == BinaryOp::Pow) return integer_power(a, b);
    fail(ErrorKind::Unsupported, cat("binary op ", int(op), " of integers"));
  } else {
    if (op == BinaryOp::Pow) return std::pow(a, b);
    if (op == BinaryOp::Atan2) return std::atan2(a, b);
    return a < b ? 0 : a == b ? 0.5 : 1;  // Step
  }
}

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
    case BinaryOp::Remainder: return remainder(a, b);
    case BinaryOp::Lt: return a < b;
    case BinaryOp::Le: return a <= b;
    case BinaryOp::Gt: return a > b;
    case BinaryOp::Ge: return a >= b;
    case BinaryOp::Eq: return a == b;
    case BinaryOp::Ne: return a != b;
    default: return special(op, a, b);
  }
}

// A number beside a tensor, as precise as that tensor's arithmetic; compared, as its elements.
template <class T, class Compute>
Compute operand(const Binary& args) {
  if constexpr (std::is_integral_v<T>) return static_cast<Compute>(args.alpha);
  if (is_comparison(args.op)) return static_cast<Compute>(rounded<T>(args.alpha));
  return static_cast<Statistic<T>>(args.alpha);
}

template <class Out, class T, class Compute>
void strided(const Binary& args) {
  auto* out = as<Out>(args.out.data);
  const T* a = as<T>(static_cast<const void*>(args.a.data));
  const auto store = [&](std::int64_t at, Compute value) {
    if constexpr (std::is_integral_v<Out>) {
      out[at] = static_cast<Out>(value);
    } else {
      out[at] = rounded<Out>(value);
    }
  };
  if (!args.b.data) {
    const auto b = operand<T, Compute>(args);
    return walk<2>(args.out, {&args.out, &args.a}, [&](const auto& at) {
      store(at[0], apply(args.op, static_cast<Compute>(a[at[1]]), b));
    });
  }
  const T* b = as<T>(static_cast<const void*>(args.b.data));
  const auto alpha = static_cast<Compute>(args.alpha);
  walk<3>(args.out, {&args.out, &args.a, &args.b}, [&](const auto& at) {
    const auto left = static_cast<Compute>(a[at[1]]);
    store(at[0], apply(args.op, left, alpha * static_cast<Compute>(b[at[2]])));
  });
}

template <class T, class Compute>
void run_as(const Binary& args) {
  if (is_comparison(args.op)) return strided<bool, T, Compute>(args);
  strided<T, T, Compute>(args);
}

}  // namespace

void run(const Binary& args) {
  switch (args.a.dtype) {
    case DType::I64: return run_as<std::int64_t, std::int64_t>(args);
    case DType::I32: return run_as<std::int32_t, std::int32_t>(args);
    case DType::Bool: return run_as<bool, std::int32_t>(args);
    default:
      return with_floating(args.a.dtype, [&](auto tag) { run_as<decltype(tag), double>(args); });
  }
}

}  // namespace coshard::kernels::reference
