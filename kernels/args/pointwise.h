#pragma once
// One element at a time: copies, functions of one, two and three elements. See kernels/args.h.
#include "kernels/args/view.h"

namespace coshard::kernels {

// to[i] = from[i], any strides, converting the dtype. Equal shapes.
struct Copy {
  View to, from;
};
struct Fill {
  void* data;
  DType dtype;
  std::int64_t count;
  double value;
};

// Integers: Neg to Reciprocal as far as they give integers, Clamp, AddScalar, MulScalar, PowScalar.
enum class UnaryOp : std::uint8_t {
  Neg,
  Abs,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Tanh,
  Sigmoid,
  Relu,
  Silu,
  Gelu,
  GeluTanh,
  Square,
  Reciprocal,
  Sign,  // of NaN: 0
  Erf,
  LeakyRelu,  // alpha: slope below 0
  Clamp,      // to [alpha, beta]; NaN stays
  // out = a + alpha, a * alpha, and a^alpha
  AddScalar,
  MulScalar,
  PowScalar,
  Sin,
  Cos,
  Floor,
  Log1p,
  Expm1,
  Softplus,  // x itself above 20 (PyTorch's threshold)
};
// y[i] = op(x[i])
struct Unary {
  UnaryOp op;
  DType dtype;
  std::int64_t count;
  const void* x;
  void* y;
  double alpha = 0, beta = 0;
};

// alpha and beta as the function's own. Relu passes where y > 0 or NaN, Clamp from bound to bound.
enum class UnaryGradOp : std::uint8_t {
  // from the result: `x` is y
  Relu,
  Exp,
  Expm1,
  Sqrt,
  Rsqrt,
  Tanh,
  Sigmoid,
  Reciprocal,
  // from the argument
  Silu,
  Gelu,
  GeluTanh,
  Abs,
  Log,
  Softplus,
  Square,
  Erf,
  LeakyRelu,
  Clamp,
  Log1p,
  PowScalar,
  Sin,
  Cos,
};
// dx[i] = dy[i] * op'(x[i])
struct UnaryGrad {
  UnaryGradOp op;
  DType dtype;
  std::int64_t count;
  const void* dy;
  const void* x;
  void* dx;
  double alpha = 0, beta = 0;
};

enum class BinaryOp : std::uint8_t {
  Add,
  Sub,
  Mul,
  Div,
  Maximum,
  Minimum,
  Pow,        // of integers: exact, a negative exponent gives the integer part
  Remainder,  // with the sign of b, as Python's %
  Atan2,      // floats only
  Step,       // how much of maximum(a, b) is a: 1, a half where equal, 0 where a < b; NaN gives 1
  Lt,
  Le,
  Gt,
  Ge,
  Eq,
  Ne,
};
constexpr bool is_comparison(BinaryOp op) { return op >= BinaryOp::Lt; }
// out[i] = a[i] op (alpha * b[i]); broadcasting is expressed by stride 0. Without b (data null) the
// right operand is alpha itself. One dtype (integers and bool allowed; alpha then integral), except
// that comparisons write bool.
struct Binary {
  BinaryOp op;
  View out, a, b;
  double alpha = 1;
};

// out[i] = condition[i] ? x[i] : y[i]; broadcasting as in Binary. condition is bool, the rest of
// one dtype. Without x or y (data null) that side is `value`.
struct Where {
  View out, condition, x, y;
  double value = 0;
};

// y = silu(a) * b, and its gradients: da = dy*b*silu'(a), db = dy*silu(a)
struct SwiGlu {
  DType dtype;
  std::int64_t count;
  const void* a;
  const void* b;
  void* y;
};
struct SwiGluGrad {
  DType dtype;
  std::int64_t count;
  const void* dy;
  const void* a;
  const void* b;
  void* da;
  void* db;
};

}  // namespace coshard::kernels
