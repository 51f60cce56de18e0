#pragma once
// Pitched row copies as a kernel: cudaMemcpy2DAsync accepts no pitch above cudaDevAttrMaxPitch
// (2^31 - 1), and copy engines are slow with narrow rows.
#include "runtime/device/peer_engine.h"

namespace coshard {

class CudaDevice;

// Queues the copy on `stream` (cudaStream_t) in units of up to 16 bytes, as the alignment of
// addresses, pitches and row width allows. All memory must be accessible to the device.
void copy_rows_on_device(CudaDevice& device, const StridedCopy& copy, void* stream);

}  // namespace coshard
