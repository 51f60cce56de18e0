#pragma once
// One element at a time: copies, unary and binary functions. See kernels/args.h.
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
  // out = a + alpha, a * alpha, and a^alpha
  AddScalar,
  MulScalar,
  PowScalar,
};
// y[i] = op(x[i])
struct Unary {
  UnaryOp op;
  DType dtype;
  std::int64_t count;
  const void* x;
  void* y;
  double alpha = 0;
};

enum class UnaryGradOp : std::uint8_t { Silu, Gelu, GeluTanh, Relu };
// dx[i] = dy[i] * op'(x[i])
struct UnaryGrad {
  UnaryGradOp op;
  DType dtype;
  std::int64_t count;
  const void* dy;
  const void* x;
  void* dx;
};

enum class BinaryOp : std::uint8_t { Add, Sub, Mul, Div, Maximum, Minimum };
// out[i] = a[i] op (alpha * b[i]); broadcasting is expressed by stride 0. One dtype (ints allowed;
// alpha then integral).
struct Binary {
  BinaryOp op;
  View out, a, b;
  double alpha = 1;
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
