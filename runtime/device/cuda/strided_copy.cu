#include "runtime/device/cuda/strided_copy.h"

#include <algorithm>
#include <bit>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/pack.h"

namespace coshard {
namespace {

struct Rows {
  std::uint8_t* to;
  const std::uint8_t* from;
  std::int64_t rows, units, to_pitch, from_pitch;
};

// 2^lanes_log threads per row: adjacent ones copy adjacent units of kBytes. The rows of all copies
// are counted as one sequence.
template <int kBytes>
struct CopyRowsKernel : PerElement {
  Rows copies[kMostCopies];
  int count, lanes_log;

  CS_BODY void operator()(Block& block) const {
    const std::int64_t lanes = std::int64_t{1} << lanes_log;
    const std::int64_t lane = block.grid_thread() & (lanes - 1);
    std::int64_t row = block.grid_thread() >> lanes_log;
    for (int i = 0; i < count; ++i) {
      const Rows& copy = copies[i];
      for (; row < copy.rows; row += block.grid_threads() >> lanes_log) {
        const std::uint8_t* source = copy.from + row * copy.from_pitch;
        std::uint8_t* target = copy.to + row * copy.to_pitch;
        for (std::int64_t unit = lane; unit < copy.units; unit += lanes)
          store_pack(target + unit * kBytes, load_pack<kBytes>(source + unit * kBytes));
      }
      row -= copy.rows;
    }
  }
};

constexpr int kThreads = 256;
constexpr int kMostLanesLog = 16;  // 256 blocks
constexpr std::int64_t kMostBlocks = 64 * 64;

template <int kBytes>
void copy_units(CudaDevice& device, std::span<const StridedCopy> copies, void* stream) {
  CopyRowsKernel<kBytes> kernel{};
  std::int64_t rows = 0, units = 1;
  for (const StridedCopy& c : copies) {
    if (c.bytes == 0) continue;
    kernel.copies[kernel.count++] = {static_cast<std::uint8_t*>(c.to),
                                     static_cast<const std::uint8_t*>(c.from),
                                     c.rows,
                                     c.bytes / kBytes,
                                     c.to_pitch,
                                     c.from_pitch};
    rows += c.rows;
    units = std::max(units, c.bytes / kBytes);
  }
  const auto wanted = static_cast<std::uint64_t>(units);
  kernel.lanes_log = std::min(static_cast<int>(std::bit_width(wanted - 1)), kMostLanesLog);
  // The grid has a multiple of a row's threads.
  const std::int64_t threads = rows << kernel.lanes_log;
  const std::int64_t blocks = std::min((threads + kThreads - 1) / kThreads, kMostBlocks);
  launch(device, "copy of rows", kernel, blocks, kThreads, 0, stream);
}

void copy_batch(CudaDevice& device, std::span<const StridedCopy> copies, void* stream) {
  std::uint64_t all = 0;
  for (const StridedCopy& c : copies)
    all |= reinterpret_cast<std::uintptr_t>(c.to) | reinterpret_cast<std::uintptr_t>(c.from) |
           static_cast<std::uint64_t>(c.bytes) | static_cast<std::uint64_t>(c.to_pitch) |
           static_cast<std::uint64_t>(c.from_pitch);
  if (all % 16 == 0) return copy_units<16>(device, copies, stream);
  if (all % 8 == 0) return copy_units<8>(device, copies, stream);
  if (all % 4 == 0) return copy_units<4>(device, copies, stream);
  if (all % 2 == 0) return copy_units<2>(device, copies, stream);
  copy_units<1>(device, copies, stream);
}

}  // namespace

void copy_rows_on_device(CudaDevice& device, std::span<const StridedCopy> copies, void* stream) {
  for (; !copies.empty(); copies = copies.subspan(std::min(copies.size(), kMostCopies)))
    copy_batch(device, copies.first(std::min(copies.size(), kMostCopies)), stream);
}

}  // namespace coshard
