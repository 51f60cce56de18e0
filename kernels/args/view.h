#pragma once
// The kernels' view of a tensor's memory. See kernels/args.h.
#include <array>
#include <cstdint>

#include <coshard/runtime/dtype.h>

namespace coshard::kernels {

constexpr int kMaxDims = 8;

struct View {
  void* data = nullptr;
  DType dtype = DType::F32;
  int ndim = 0;
  std::array<std::int64_t, kMaxDims> shape{};
  std::array<std::int64_t, kMaxDims> strides{};
};

}  // namespace coshard::kernels
