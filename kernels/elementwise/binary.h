#pragma once
// Functions of two elements, each written once for all back ends, like those of one element
// (unary.h); their gradients are composed of operators. A comparison returns a bool, or a register of them. To add a
// function, add a struct here and an entry in its list.
#include <string_view>

#include "kernels/elementwise/element.h"
#include "kernels/integers.h"

// clang-format off
#define COSHARD_BINARY_ARITHMETIC(X) \
  X(Add) X(Sub) X(Mul) X(Div) X(Maximum) X(Minimum) X(Pow) X(Remainder) X(Atan2) X(Heaviside)
#define COSHARD_COMPARISONS(X) X(Lt) X(Le) X(Gt) X(Ge) X(Eq) X(Ne)
// clang-format on
#define COSHARD_BINARY_FUNCTIONS(X) COSHARD_BINARY_ARITHMETIC(X) COSHARD_COMPARISONS(X)

namespace coshard::kernels {

enum class BinaryOp : std::uint8_t {
#define X(Name) Name,
  COSHARD_BINARY_FUNCTIONS(X)
#undef X
};

namespace elementwise {

struct BinaryFunction {
  static constexpr bool kVectorValue = false;  // see Function
  static constexpr bool kDivides = false;      // integer division by zero is the caller's error
};

struct Add : BinaryFunction {
  static constexpr std::string_view kName = "add";
  static constexpr bool kVectorValue = true;
  CS_ELEMENT static auto value(auto, auto x, auto y) { return x + y; }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return wrapping_add(x, y); }
};
struct Sub : BinaryFunction {
  static constexpr std::string_view kName = "sub";
  static constexpr bool kVectorValue = true;
  CS_ELEMENT static auto value(auto, auto x, auto y) { return x - y; }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return wrapping_add(x, wrapping_negate(y)); }
};
struct Mul : BinaryFunction {
  static constexpr std::string_view kName = "mul";
  static constexpr bool kVectorValue = true;
  CS_ELEMENT static auto value(auto, auto x, auto y) { return x * y; }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return wrapping_multiply(x, y); }
};
// For integers rounded toward 0.
struct Div : BinaryFunction {
  static constexpr std::string_view kName = "div";
  static constexpr bool kVectorValue = true, kDivides = true;
  CS_ELEMENT static auto value(auto, auto x, auto y) { return x / y; }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return integer_quotient(x, y); }
};
// NaN propagates.
struct Maximum : BinaryFunction {
  static constexpr std::string_view kName = "maximum";
  static constexpr bool kVectorValue = true;
  CS_ELEMENT static auto value(auto m, auto x, auto y) { return m.maximum(x, y); }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return x > y ? x : y; }
};
struct Minimum : BinaryFunction {
  static constexpr std::string_view kName = "minimum";
  static constexpr bool kVectorValue = true;
  CS_ELEMENT static auto value(auto m, auto x, auto y) { return m.minimum(x, y); }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return x < y ? x : y; }
};
// Exact for integers; a negative exponent gives the integer part.
struct Pow : BinaryFunction {
  static constexpr std::string_view kName = "pow";
  CS_ELEMENT static auto value(auto m, auto x, auto y) { return m.pow(x, y); }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return integer_power(x, y); }
};
// With the sign of y, like Python's %.
struct Remainder : BinaryFunction {
  static constexpr std::string_view kName = "remainder";
  static constexpr bool kDivides = true;
  CS_ELEMENT static auto value(auto m, auto x, auto y) {
    const auto rest = m.fmod(x, y);
    const auto turned = m.select((rest < m(0)) != (y < m(0)), rest + y, rest);
    return m.select(rest != m(0), turned, rest);
  }
  CS_ELEMENT static auto of_integer(auto x, auto y) { return integer_remainder(x, y); }
};
struct Atan2 : BinaryFunction {
  static constexpr std::string_view kName = "atan2";
  CS_ELEMENT static auto value(auto m, auto x, auto y) { return m.atan2(x, y); }
};
// The share of x in the gradient of maximum(x, y): 1, a half if equal, 0 if x < y; NaN gives 1.
struct Heaviside : BinaryFunction {
  static constexpr std::string_view kName = "step";
  CS_ELEMENT static auto value(auto m, auto x, auto y) {
    return m.select(x < y, m(0), m.select(x == y, m(0.5), m(1)));
  }
};

struct Lt : BinaryFunction {
  static constexpr std::string_view kName = "lt";
  CS_ELEMENT static auto holds(auto x, auto y) { return x < y; }
};
struct Le : BinaryFunction {
  static constexpr std::string_view kName = "le";
  CS_ELEMENT static auto holds(auto x, auto y) { return x <= y; }
};
struct Gt : BinaryFunction {
  static constexpr std::string_view kName = "gt";
  CS_ELEMENT static auto holds(auto x, auto y) { return x > y; }
};
struct Ge : BinaryFunction {
  static constexpr std::string_view kName = "ge";
  CS_ELEMENT static auto holds(auto x, auto y) { return x >= y; }
};
struct Eq : BinaryFunction {
  static constexpr std::string_view kName = "eq";
  CS_ELEMENT static auto holds(auto x, auto y) { return x == y; }
};
struct Ne : BinaryFunction {
  static constexpr std::string_view kName = "ne";
  CS_ELEMENT static auto holds(auto x, auto y) { return x != y; }
};

template <class F>
concept Comparison = requires {
  F::holds(0, 0);
};
template <class F>
concept TakesTwoIntegers = Comparison<F> || TakesIntegersOf<F, std::int64_t, std::int64_t>;

// For integers (if supported) or floating-point; a comparison returns 0 or 1.
template <class F, class M, class V>
CS_ELEMENT V apply(M m, V x, V y) {
  if constexpr (Comparison<F>) {
    return static_cast<V>(F::holds(x, y));
  } else if constexpr (static_cast<V>(0.5) != 0) {
    return F::value(m, x, y);
  } else {
    return F::of_integer(x, y);
  }
}

}  // namespace elementwise
}  // namespace coshard::kernels
