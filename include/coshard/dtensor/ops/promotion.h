#pragma once
// Which dtype an operator on mixed dtypes computes in: PyTorch's promotion. Floats before integers
// before bool; within a category, tensors with dimensions decide, then 0-dimensional ones, then
// numbers. Pure functions.
#include <coshard/dtensor/scalar.h>
#include <coshard/dtensor/tensor.h>

namespace coshard {

// The dtype that holds both: bool < i32 < i64 < bf16, f16 < f32 < f64, where bf16 and an integer
// give bf16, bf16 and f16 give f32.
DType promoted(DType a, DType b);

// torch.result_type.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, const Scalar& b);

// Whether an in-place operator may store its result so: not from floats to integers, nor from
// numbers to bool.
bool can_store(DType result, DType destination);

// Error{BadInput} for a number that `dtype` cannot hold: one beyond its range, and NaN or an
// infinity as an integer. Bool holds every number.
void require_fits(double value, DType dtype, const char* who);

// What a function that has no integer results (exp, division, …) computes in: floats as they are,
// everything else as f32.
constexpr DType floating_type(DType dtype) { return is_floating(dtype) ? dtype : DType::F32; }

}  // namespace coshard
