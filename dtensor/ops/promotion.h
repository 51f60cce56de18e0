#pragma once
// Which dtype an operator on mixed dtypes computes in: PyTorch's promotion. Floats before integers
// before bool; within a category, tensors with dimensions decide, then 0-dimensional ones, then
// numbers. Pure functions.
#include <concepts>

#include "dtensor/tensor.h"

namespace coshard {

// A number given beside a tensor. Whether it was an integer matters: i64 + 2 is i64, i64 + 2.0 is
// f32. Exact for integers up to 2^53.
struct Scalar {
  double value = 0;
  DType dtype = DType::F32;  // Bool, I64 or F32: its category

  constexpr Scalar() = default;
  // Implicit, as in arithmetic.
  constexpr Scalar(bool number) : value(number), dtype(DType::Bool) {}  // NOLINT
  template <std::floating_point T>
  constexpr Scalar(T number) : value(static_cast<double>(number)) {}  // NOLINT
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Scalar(T number)
      : value(static_cast<double>(number)), dtype(DType::I64) {}  // NOLINT
};

// The dtype that holds both: bool < i32 < i64 < bf16, f16 < f32 < f64, where bf16 and an integer
// give bf16, bf16 and f16 give f32.
DType promoted(DType a, DType b);

// torch.result_type.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, const Scalar& b);

// Whether an in-place operator may store its result so: not from floats to integers, nor from
// numbers to bool.
bool can_store(DType result, DType destination);

// What a function that has no integer results (exp, division, …) computes in: floats as they are,
// everything else as f32.
constexpr DType floating_type(DType dtype) { return is_floating(dtype) ? dtype : DType::F32; }

}  // namespace coshard
