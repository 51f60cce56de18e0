#include "runtime/device/cuda/strided_copy.h"

#include <algorithm>
#include <bit>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/pack.h"

namespace coshard {
namespace {

// 2^lanes_log threads per row: adjacent ones copy adjacent units of kBytes.
template <int kBytes>
struct CopyRowsKernel : PerElement {
  std::uint8_t* to;
  const std::uint8_t* from;
  std::int64_t rows, units, to_pitch, from_pitch;
  int lanes_log;

  CS_BODY void operator()(Block& block) const {
    const std::int64_t lanes = std::int64_t{1} << lanes_log;
    const std::int64_t lane = block.grid_thread() & (lanes - 1);
    for (std::int64_t row = block.grid_thread() >> lanes_log; row < rows;
         row += block.grid_threads() >> lanes_log) {
      const std::uint8_t* source = from + row * from_pitch;
      std::uint8_t* target = to + row * to_pitch;
      for (std::int64_t unit = lane; unit < units; unit += lanes)
        store_pack(target + unit * kBytes, load_pack<kBytes>(source + unit * kBytes));
    }
  }
};

constexpr int kThreads = 256;
constexpr int kMostLanesLog = 14;  // 64 blocks
constexpr std::int64_t kMostBlocks = 64 * 64;

template <int kBytes>
void copy_units(CudaDevice& device, const StridedCopy& copy, void* stream) {
  CopyRowsKernel<kBytes> kernel{};
  kernel.to = static_cast<std::uint8_t*>(copy.to);
  kernel.from = static_cast<const std::uint8_t*>(copy.from);
  kernel.rows = copy.rows;
  kernel.units = copy.bytes / kBytes;
  kernel.to_pitch = copy.to_pitch;
  kernel.from_pitch = copy.from_pitch;
  const auto wanted = static_cast<std::uint64_t>(kernel.units);
  kernel.lanes_log = std::min(static_cast<int>(std::bit_width(wanted - 1)), kMostLanesLog);
  // The grid has a multiple of a row's threads.
  const std::int64_t threads = copy.rows << kernel.lanes_log;
  const std::int64_t blocks = std::min((threads + kThreads - 1) / kThreads, kMostBlocks);
  launch(device, "copy of rows", kernel, blocks, kThreads, 0, stream);
}

}  // namespace

void copy_rows_on_device(CudaDevice& device, const StridedCopy& copy, void* stream) {
  if (copy.rows == 0 || copy.bytes == 0) return;
  const std::uint64_t all =
      reinterpret_cast<std::uintptr_t>(copy.to) | reinterpret_cast<std::uintptr_t>(copy.from) |
      static_cast<std::uint64_t>(copy.bytes) | static_cast<std::uint64_t>(copy.to_pitch) |
      static_cast<std::uint64_t>(copy.from_pitch);
  if (all % 16 == 0) return copy_units<16>(device, copy, stream);
  if (all % 8 == 0) return copy_units<8>(device, copy, stream);
  if (all % 4 == 0) return copy_units<4>(device, copy, stream);
  if (all % 2 == 0) return copy_units<2>(device, copy, stream);
  copy_units<1>(device, copy, stream);
}

}  // namespace coshard
