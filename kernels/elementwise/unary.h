#pragma once
// Functions of one element, each written once for all back ends: a value and a derivative over a V
// (double, float, or a register of floats) with the elementary functions `m` of that V, and a value
// over integers if supported. To add a function, add a struct here and an entry in the list; back
// ends switch over the list, so that one that lacks the function does not compile.
#include <cstdint>
#include <limits>
#include <string_view>

#include "kernels/elementwise/element.h"
#include "kernels/integers.h"

// clang-format off
#define COSHARD_UNARY_FUNCTIONS(X) \
  X(Neg) X(Abs) X(Sign) X(Floor) X(Relu) X(LeakyRelu) X(Clamp) \
  X(AddScalar) X(MulScalar) X(PowScalar) X(Square) X(Reciprocal) X(Sqrt) X(Rsqrt) \
  X(Exp) X(Expm1) X(Log) X(Log1p) X(Sin) X(Cos) X(Tanh) X(Erf) \
  X(Sigmoid) X(Softplus) X(Silu) X(Gelu) X(GeluTanh)
// clang-format on

namespace coshard::kernels {

enum class UnaryOp : std::uint8_t {
#define X(Name) Name,
  COSHARD_UNARY_FUNCTIONS(X)
#undef X
};

namespace elementwise {

// A function's defaults.
struct Function {
  // The derivative is a function of the result y: derivative(m, y), not derivative(m, x).
  static constexpr bool kFromResult = false;
  // Whether the elementary functions it needs exist for registers of floats; otherwise the
  // reference loop is used.
  static constexpr bool kVectorValue = true, kVectorDerivative = true;
};

struct Neg : Function {
  static constexpr std::string_view kName = "neg";
  CS_ELEMENT static auto value(auto, auto x, auto, auto) { return -x; }
  CS_ELEMENT static auto derivative(auto m, auto, auto, auto) { return m(-1); }
  CS_ELEMENT static auto of_integer(auto x, auto, auto) { return wrapping_negate(x); }
};

// sign(NaN) is 0.
struct Sign : Function {
  static constexpr std::string_view kName = "sign";
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) {
    return m.select(x > m(0), m(1), m.select(x < m(0), m(-1), m(0)));
  }
  CS_ELEMENT static auto derivative(auto m, auto, auto, auto) { return m(0); }
  CS_ELEMENT static auto of_integer(auto x, auto, auto) {
    return static_cast<decltype(x)>((x > 0) - (x < 0));
  }
};

struct Abs : Function {
  static constexpr std::string_view kName = "abs";
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.abs(x); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto a, auto b) {
    return Sign::value(m, x, a, b);
  }
  CS_ELEMENT static auto of_integer(auto x, auto, auto) { return x < 0 ? wrapping_negate(x) : x; }
};

struct Floor : Function {
  static constexpr std::string_view kName = "floor";
  static constexpr bool kVectorValue = false;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.floor(x); }
  CS_ELEMENT static auto derivative(auto m, auto, auto, auto) { return m(0); }
  CS_ELEMENT static auto of_integer(auto x, auto, auto) { return x; }
};

// The gradient passes where y > 0 or NaN, whatever its value.
struct Relu : Function {
  static constexpr std::string_view kName = "relu";
  static constexpr bool kFromResult = true;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.select(x < m(0), m(0), x); }
  CS_ELEMENT static auto gradient(auto m, auto dy, auto y, auto, auto) {
    return m.select(y <= m(0), m(0), dy);
  }
  CS_ELEMENT static auto of_integer(auto x, auto, auto) { return x < 0 ? 0 * x : x; }
};

// a: the derivative below 0.
struct LeakyRelu : Function {
  static constexpr std::string_view kName = "leaky_relu";
  CS_ELEMENT static auto value(auto m, auto x, auto a, auto) {
    return m.select(x > m(0), x, x * a);
  }
  CS_ELEMENT static auto derivative(auto m, auto x, auto a, auto) {
    return m.select(x > m(0), m(1), a);
  }
};

// To [a, b]: NaN propagates, from a bound too. The gradient passes strictly between the bounds (as
// in PyTorch 2.15); an infinite bound does not limit.
struct Clamp : Function {
  static constexpr std::string_view kName = "clamp";
  CS_ELEMENT static auto value(auto m, auto x, auto a, auto b) {
    return m.minimum(m.maximum(x, a), b);
  }
  CS_ELEMENT static auto gradient(auto m, auto dy, auto x, auto a, auto b) {
    const auto infinity = m(std::numeric_limits<double>::infinity());
    return m.select(((x > a) | (a == -infinity)) & ((x < b) | (b == infinity)), dy, m(0));
  }
  CS_ELEMENT static auto of_integer(auto x, auto a, auto b) {
    const auto raised = x < a ? a : x;
    return raised < b ? raised : b;
  }
};

struct AddScalar : Function {
  static constexpr std::string_view kName = "add_scalar";
  CS_ELEMENT static auto value(auto, auto x, auto a, auto) { return x + a; }
  CS_ELEMENT static auto derivative(auto m, auto, auto, auto) { return m(1); }
  CS_ELEMENT static auto of_integer(auto x, auto a, auto) { return wrapping_add(x, a); }
};

struct MulScalar : Function {
  static constexpr std::string_view kName = "mul_scalar";
  CS_ELEMENT static auto value(auto, auto x, auto a, auto) { return x * a; }
  CS_ELEMENT static auto derivative(auto, auto, auto a, auto) { return a; }
  CS_ELEMENT static auto of_integer(auto x, auto a, auto) { return wrapping_multiply(x, a); }
};

// x^a. The fast back ends run Square if a is 2.
struct PowScalar : Function {
  static constexpr std::string_view kName = "pow_scalar";
  static constexpr bool kVectorValue = false, kVectorDerivative = false;
  CS_ELEMENT static auto value(auto m, auto x, auto a, auto) { return m.pow(x, a); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto a, auto) {
    return m.select(a == m(0), m(0), a * m.pow(x, a - m(1)));
  }
  CS_ELEMENT static auto of_integer(auto x, auto a, auto) { return integer_power(x, a); }
};

struct Square : Function {
  static constexpr std::string_view kName = "square";
  CS_ELEMENT static auto value(auto, auto x, auto, auto) { return x * x; }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) { return m(2) * x; }
  CS_ELEMENT static auto of_integer(auto x, auto, auto) { return wrapping_multiply(x, x); }
};

struct Reciprocal : Function {
  static constexpr std::string_view kName = "reciprocal";
  static constexpr bool kFromResult = true;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m(1) / x; }
  CS_ELEMENT static auto derivative(auto, auto y, auto, auto) { return -y * y; }
};

struct Sqrt : Function {
  static constexpr std::string_view kName = "sqrt";
  static constexpr bool kFromResult = true;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.sqrt(x); }
  CS_ELEMENT static auto derivative(auto m, auto y, auto, auto) { return m(0.5) / y; }
};

struct Rsqrt : Function {
  static constexpr std::string_view kName = "rsqrt";
  static constexpr bool kFromResult = true;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m(1) / m.sqrt(x); }
  CS_ELEMENT static auto derivative(auto m, auto y, auto, auto) { return m(-0.5) * y * y * y; }
};

struct Exp : Function {
  static constexpr std::string_view kName = "exp";
  static constexpr bool kFromResult = true;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.exp(x); }
  CS_ELEMENT static auto derivative(auto, auto y, auto, auto) { return y; }
};

struct Expm1 : Function {
  static constexpr std::string_view kName = "expm1";
  static constexpr bool kFromResult = true, kVectorValue = false;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.expm1(x); }
  CS_ELEMENT static auto derivative(auto m, auto y, auto, auto) { return y + m(1); }
};

struct Log : Function {
  static constexpr std::string_view kName = "log";
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.log(x); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) { return m(1) / x; }
};

struct Log1p : Function {
  static constexpr std::string_view kName = "log1p";
  static constexpr bool kVectorValue = false;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.log1p(x); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) { return m(1) / (m(1) + x); }
};

struct Sin : Function {
  static constexpr std::string_view kName = "sin";
  static constexpr bool kVectorValue = false, kVectorDerivative = false;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.sin(x); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) { return m.cos(x); }
};

struct Cos : Function {
  static constexpr std::string_view kName = "cos";
  static constexpr bool kVectorValue = false, kVectorDerivative = false;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.cos(x); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) { return -m.sin(x); }
};

struct Tanh : Function {
  static constexpr std::string_view kName = "tanh";
  static constexpr bool kFromResult = true;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.tanh(x); }
  CS_ELEMENT static auto derivative(auto m, auto y, auto, auto) { return m(1) - y * y; }
};

struct Erf : Function {
  static constexpr std::string_view kName = "erf";
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m.erf(x); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) {
    return m(1.1283791670955126) * m.exp(-x * x);  // 2 / sqrt(pi)
  }
};

struct Sigmoid : Function {
  static constexpr std::string_view kName = "sigmoid";
  static constexpr bool kFromResult = true;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return m(1) / (m(1) + m.exp(-x)); }
  CS_ELEMENT static auto derivative(auto m, auto y, auto, auto) { return y * (m(1) - y); }
};

// x itself above 20 (PyTorch's threshold).
struct Softplus : Function {
  static constexpr std::string_view kName = "softplus";
  static constexpr bool kVectorValue = false;
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) {
    return m.select(x > m(20), x, m.log1p(m.exp(x)));
  }
  CS_ELEMENT static auto derivative(auto m, auto x, auto a, auto b) {
    return m.select(x > m(20), m(1), Sigmoid::value(m, x, a, b));
  }
};

struct Silu : Function {
  static constexpr std::string_view kName = "silu";
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return x / (m(1) + m.exp(-x)); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto a, auto b) {
    const auto s = Sigmoid::value(m, x, a, b);
    return s * (m(1) + x * (m(1) - s));
  }
};

struct Gelu : Function {
  static constexpr std::string_view kName = "gelu";
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) { return x * normal_cdf(m, x); }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) {
    return normal_cdf(m, x) + x * m.exp(m(-0.5) * x * x) * m(0.39894228040143267);
  }

 private:
  CS_ELEMENT static auto normal_cdf(auto m, auto x) {
    return m(0.5) + m(0.5) * m.erf(x * m(0.7071067811865476));
  }
};

// By the tanh approximation.
struct GeluTanh : Function {
  static constexpr std::string_view kName = "gelu_tanh";
  CS_ELEMENT static auto value(auto m, auto x, auto, auto) {
    return m(0.5) * x * (m(1) + tanh_of(m, x));
  }
  CS_ELEMENT static auto derivative(auto m, auto x, auto, auto) {
    const auto t = tanh_of(m, x);
    const auto inner = m(kScale) * (m(1) + m(3 * kCubic) * x * x);
    return m(0.5) * (m(1) + t) + m(0.5) * x * (m(1) - t * t) * inner;
  }

 private:
  static constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  CS_ELEMENT static auto tanh_of(auto m, auto x) {
    return m.tanh(m(kScale) * (x + m(kCubic) * x * x * x));
  }
};

// dx of one element; `at` is x, or y for a function with kFromResult.
template <class F, class M, class V>
CS_ELEMENT V gradient(M m, V dy, V at, V a, V b) {
  if constexpr (requires { F::gradient(m, dy, at, a, b); }) {
    return F::gradient(m, dy, at, a, b);
  } else {
    return dy * F::derivative(m, at, a, b);
  }
}

template <class F>
concept TakesIntegers = TakesIntegersOf<F, std::int64_t, std::int64_t, std::int64_t>;

template <UnaryOp op>
struct FunctionOf;
#define X(Name)                      \
  template <>                        \
  struct FunctionOf<UnaryOp::Name> { \
    using type = elementwise::Name;  \
  };
COSHARD_UNARY_FUNCTIONS(X)
#undef X

}  // namespace elementwise

}  // namespace coshard::kernels
