#pragma once
// Pitched row copies as a kernel: cudaMemcpy2DAsync accepts no pitch above cudaDevAttrMaxPitch
// (2^31 - 1), and copy engines are slow with narrow rows.
#include <cstddef>
#include <span>

#include "runtime/device/peer_engine.h"

namespace coshard {

class CudaDevice;

// Queues the copies on `stream` (cudaStream_t) as one kernel for every kMostCopies, in units of up
// to 16 bytes, as the alignment of addresses, pitches and row widths allows. All memory must be
// accessible to the device; no copy reads or writes what another one writes.
constexpr std::size_t kMostCopies = 32;
void copy_rows_on_device(CudaDevice& device, std::span<const StridedCopy> copies, void* stream);

}  // namespace coshard
