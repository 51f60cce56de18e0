#pragma once
// From a run-time dtype to a C++ type. Used by the reference loops and by the bodies for GPUs.
#include <cstdint>

#include <coshard/runtime/dtype.h>
#include <coshard/runtime/error.h>

namespace coshard::kernels {

// Calls f(T{}) with the element type of a floating dtype; Error{Unsupported} otherwise.
template <class F>
void with_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F32: return f(float{});
    case DType::F64: return f(double{});
    case DType::BF16: return f(BFloat16{});
    case DType::F16: return f(Float16{});
    default: fail(ErrorKind::Unsupported, cat("a floating kernel was asked for ", dtype));
  }
}

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
