#pragma once
// Arithmetic and comparison operators; a number may be on either side. Each calls the function of
// ops_pointwise.h. Operands carry their call site for error messages, because an operator cannot
// have default arguments.
#include <coshard/dtensor/ops/ops_pointwise.h>

#pragma GCC visibility push(default)
namespace coshard {

// Valid within one expression only.
struct Operand {
  Operand(const Tensor& x, CallSite stands_at = CallSite::current())  // NOLINT: implicit
      : tensor(x), site(stands_at) {}
  const Tensor& tensor;
  CallSite site;
};
struct NumberOperand {
  template <Number T>
  NumberOperand(T number, CallSite stands_at = CallSite::current())  // NOLINT: implicit
      : scalar(number), site(stands_at) {}
  Scalar scalar;
  CallSite site;
};

inline Tensor operator+(Operand a, const Tensor& b) { return add(a.tensor, b, 1, a.site); }
inline Tensor operator-(Operand a, const Tensor& b) { return sub(a.tensor, b, 1, a.site); }
inline Tensor operator*(Operand a, const Tensor& b) { return mul(a.tensor, b, a.site); }
inline Tensor operator/(Operand a, const Tensor& b) { return div(a.tensor, b, a.site); }
inline Tensor operator+(Operand a, const Scalar& b) { return add(a.tensor, b, 1, a.site); }
inline Tensor operator-(Operand a, const Scalar& b) { return sub(a.tensor, b, 1, a.site); }
inline Tensor operator*(Operand a, const Scalar& b) { return mul(a.tensor, b, a.site); }
inline Tensor operator/(Operand a, const Scalar& b) { return div(a.tensor, b, a.site); }
inline Tensor operator+(NumberOperand a, const Tensor& b) { return add(b, a.scalar, 1, a.site); }
inline Tensor operator-(NumberOperand a, const Tensor& b) { return rsub(b, a.scalar, a.site); }
inline Tensor operator*(NumberOperand a, const Tensor& b) { return mul(b, a.scalar, a.site); }
// Reciprocal times the number (torch.Tensor.__rtruediv__).
inline Tensor operator/(NumberOperand a, const Tensor& b) {
  return mul(reciprocal(b, a.site), a.scalar, a.site);
}
inline Tensor operator-(Operand x) { return neg(x.tensor, x.site); }

// In place, like add_.
inline Tensor operator+=(const Tensor& x, Operand y) { return add_(x, y.tensor, 1, y.site); }
inline Tensor operator-=(const Tensor& x, Operand y) { return sub_(x, y.tensor, y.site); }
inline Tensor operator*=(const Tensor& x, Operand y) { return mul_(x, y.tensor, y.site); }
inline Tensor operator/=(const Tensor& x, Operand y) { return div_(x, y.tensor, y.site); }
inline Tensor operator+=(const Tensor& x, NumberOperand y) { return add_(x, y.scalar, 1, y.site); }
inline Tensor operator-=(const Tensor& x, NumberOperand y) { return sub_(x, y.scalar, y.site); }
inline Tensor operator*=(const Tensor& x, NumberOperand y) { return mul_(x, y.scalar, y.site); }
inline Tensor operator/=(const Tensor& x, NumberOperand y) { return div_(x, y.scalar, y.site); }

// Elementwise; bool results. Both sides have the same type so that C++20 does not rewrite them with
// the operands swapped.
inline Tensor operator==(Operand a, Operand b) { return eq(a.tensor, b.tensor, a.site); }
inline Tensor operator!=(Operand a, Operand b) { return ne(a.tensor, b.tensor, a.site); }
inline Tensor operator<(Operand a, Operand b) { return lt(a.tensor, b.tensor, a.site); }
inline Tensor operator<=(Operand a, Operand b) { return le(a.tensor, b.tensor, a.site); }
inline Tensor operator>(Operand a, Operand b) { return gt(a.tensor, b.tensor, a.site); }
inline Tensor operator>=(Operand a, Operand b) { return ge(a.tensor, b.tensor, a.site); }
inline Tensor operator==(Operand a, NumberOperand b) { return eq(a.tensor, b.scalar, a.site); }
inline Tensor operator!=(Operand a, NumberOperand b) { return ne(a.tensor, b.scalar, a.site); }
inline Tensor operator<(Operand a, NumberOperand b) { return lt(a.tensor, b.scalar, a.site); }
inline Tensor operator<=(Operand a, NumberOperand b) { return le(a.tensor, b.scalar, a.site); }
inline Tensor operator>(Operand a, NumberOperand b) { return gt(a.tensor, b.scalar, a.site); }
inline Tensor operator>=(Operand a, NumberOperand b) { return ge(a.tensor, b.scalar, a.site); }
inline Tensor operator==(NumberOperand a, Operand b) { return eq(b.tensor, a.scalar, b.site); }
inline Tensor operator!=(NumberOperand a, Operand b) { return ne(b.tensor, a.scalar, b.site); }
inline Tensor operator<(NumberOperand a, Operand b) { return gt(b.tensor, a.scalar, b.site); }
inline Tensor operator<=(NumberOperand a, Operand b) { return ge(b.tensor, a.scalar, b.site); }
inline Tensor operator>(NumberOperand a, Operand b) { return lt(b.tensor, a.scalar, b.site); }
inline Tensor operator>=(NumberOperand a, Operand b) { return le(b.tensor, a.scalar, b.site); }

// For bool tensors only; Error{BadInput} otherwise (PyTorch does bitwise operations).
Tensor operator&(Operand a, Operand b);
Tensor operator|(Operand a, Operand b);
Tensor operator~(Operand x);

}  // namespace coshard
#pragma GCC visibility pop
