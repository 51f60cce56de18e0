#pragma once
// From a run-time dtype to a C++ type. Used by the reference loops and the GPU kernels.
#include <cstdint>

#include <coshard/runtime/dtype.h>
#include <coshard/runtime/error.h>

namespace coshard::kernels {

// Calls f(T{}) with the element type of a floating-point dtype; Error{Unsupported} otherwise.
template <class F>
void with_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32: return f(float{});
    case DType::F64: return f(double{});
    case DType::BF16: return f(BFloat16{});
    case DType::F16: return f(Float16{});
    case DType::F8E4M3:
    case DType::F8E5M2: fail_without_arithmetic(dtype);
    default: fail(ErrorKind::Unsupported, str_cat("expected a floating-point dtype, got ", dtype));
  }
}

// Of all dtypes that are computed with.
template <class F>
void with_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::I64: return f(std::int64_t{});
    case DType::I32: return f(std::int32_t{});
    case DType::Bool: return f(bool{});
    default: return with_floating(dtype, f);
  }
}

template <class T>
T* as(void* data) {
  return static_cast<T*>(data);
}
template <class T>
const T* as(const void* data) {
  return static_cast<const T*>(data);
}

}  // namespace coshard::kernels
