#pragma once
// The index of Gather and Scatter, in either dtype. Used by the .cu files only.
#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {

// A kernel member.
struct IndexArray {
  const void* data;
  bool wide;              // I64, not I32
  DeviceAssertKind kind;  // reported for an index outside [0, limit)
  std::int64_t limit;     // size of the dimension
  DeviceAssert* finding;

  // The index at position `at`; -1, and reported to the host, if it is out of range.
  CS_BODY std::int64_t checked(Block& block, std::int64_t at) const {
    const std::int64_t index = wide ? static_cast<const std::int64_t*>(data)[at]
                                    : static_cast<const std::int32_t*>(data)[at];
    if (index >= 0 && index < limit) return index;
    leave(block, finding, kind, index, limit);
    return -1;
  }
};

inline IndexArray index_array(const CudaDevice& device, const View& index, DeviceAssertKind kind,
                              std::int64_t limit) {
  with_index(index.dtype, [](auto) {});  // rejects other dtypes
  return {index.data, index.dtype == DType::I64, kind, limit, device.finding()};
}

}  // namespace coshard::kernels::cuda
