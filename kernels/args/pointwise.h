#pragma once
// Elementwise kernels: copies, and functions of one, two and three elements. See kernels/args.h.
#include "kernels/args/view.h"
#include "kernels/elementwise/binary_switch.h"
#include "kernels/elementwise/unary_switch.h"

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

// y[i] = op(x[i]), with the parameters a = alpha and b = beta. Integers if takes_integers(op).
struct Unary {
  UnaryOp op;
  DType dtype;
  std::int64_t count;
  const void* x;
  void* y;
  double alpha = 0, beta = 0;
};

// dx[i] = dy[i] * op'(x[i]); `x` is the function's result if is_from_result(op).
struct UnaryGrad {
  UnaryOp op;
  DType dtype;
  std::int64_t count;
  const void* dy;
  const void* x;
  void* dx;
  double alpha = 0, beta = 0;
};

// out[i] = a[i] op (alpha * b[i]); broadcasting is expressed by stride 0. Without b (data null) the
// right operand is alpha itself. One dtype (integers and bool allowed; alpha then integral), except
// that comparisons write bool.
struct Binary {
  BinaryOp op;
  View out, a, b;
  double alpha = 1;
};

// out[i] = condition[i] ? x[i] : y[i]; broadcasting as in Binary. condition is bool, the others
// share one dtype. If the data of x or y are null, that side is `value`.
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

// clang-format off
#define COSHARD_POINTWISE_KERNELS(X) \
  X(Copy) X(Fill) X(Unary) X(UnaryGrad) X(Binary) X(Where) X(SwiGlu) X(SwiGluGrad)
// clang-format on

}  // namespace coshard::kernels
