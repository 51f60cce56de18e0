#pragma once
// Loading, computing and storing elements on a device. Used by the .cu files only.
#include <cstdint>
#include <type_traits>

#include "kernels/args.h"
#include "kernels/cuda/cuda.h"
#include "kernels/typed.h"
#include "runtime/device/cuda/launch.h"

namespace coshard::kernels::cuda {

template <class F>
void with_index(DType dtype, F&& f) {
  switch (dtype) {
    case DType::I64: return f(std::int64_t{});
    case DType::I32: return f(std::int32_t{});
    default: fail(ErrorKind::Unsupported, str_cat("index must be i64 or i32, got ", dtype));
  }
}

// The compute type of T, also used for its statistics: f32 for bf16, f16 and f32, f64 for f64.
// Integers are unchanged.
template <class T>
using Wide = std::conditional_t<is_short_float<T>, float, T>;

template <class T>
CS_HOST_BODY Wide<T> widen(T value) {
  return static_cast<Wide<T>>(value);
}

inline std::int64_t count_of(const View& v) {
  std::int64_t count = 1;
  for (int d = 0; d < v.ndim; ++d) count *= v.shape[d];
  return count;
}

// A View's shape or strides as a kernel member.
struct Dims {
  std::int64_t at[kMaxDims];
};
inline Dims dims_of(const std::array<std::int64_t, kMaxDims>& from) {
  Dims dims{};
  for (int d = 0; d < kMaxDims; ++d) dims.at[d] = from[static_cast<std::size_t>(d)];
  return dims;
}

// Reports `value` to the host, unless an error was reported before.
CS_BODY void leave(Block& block, DeviceAssert* finding, DeviceAssertKind kind, std::int64_t value,
                   std::int64_t limit) {
  if (block.atomic_cas(&finding->kind, std::uint32_t{0}, static_cast<std::uint32_t>(kind)) != 0)
    return;
  finding->value = value;
  finding->limit = limit;
  block.fence();
  *const_cast<volatile std::uint32_t*>(&finding->written) = 1;
}

}  // namespace coshard::kernels::cuda
