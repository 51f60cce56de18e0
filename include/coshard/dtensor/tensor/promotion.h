#pragma once
// The dtype in which an operator on mixed dtypes computes: PyTorch's promotion. Floating-point
// before integers before bool; within a category, tensors with dimensions decide, then
// 0-dimensional ones, then numbers. Pure functions.
#include <coshard/dtensor/tensor/scalar.h>
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// The dtype that holds both: bool < i32 < i64 < bf16, f16 < f32 < f64, where bf16 and an integer
// give bf16, bf16 and f16 give f32.
DType promoted(DType a, DType b);

// torch.result_type.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, const Scalar& b);

// Whether an in-place operator may store a result of dtype `result` in `destination`: not
// floating-point in integers, nor numbers in bool.
bool can_store(DType result, DType destination);

// Error{BadInput} for a number that `dtype` cannot hold: out of range, or NaN or infinity as an
// integer. Bool holds every number.
void require_fits(double value, DType dtype, const char* who);

// The dtype in which functions without integer results (exp, division, …) compute: floating-point
// dtypes as they are, others as f32. Error{Unsupported}: an 8-bit float.
DType floating_type(DType dtype);

}  // namespace coshard
#pragma GCC visibility pop
