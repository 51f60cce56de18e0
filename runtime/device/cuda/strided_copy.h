#pragma once
// Copies of rows that do not lie side by side, as a kernel: cudaMemcpy2DAsync takes no pitch above
// cudaDevAttrMaxPitch (2^31 - 1), and copy engines are slow with narrow rows.
#include "runtime/device/peer_engine.h"

namespace coshard {

class CudaDevice;

// Queues the copy on `stream` (cudaStream_t) in units of up to 16 bytes, as the addresses, the
// pitches and the width of a row allow. All of it is memory that the device reaches.
void copy_rows_on_device(CudaDevice& device, const StridedCopy& copy, void* stream);

}  // namespace coshard
