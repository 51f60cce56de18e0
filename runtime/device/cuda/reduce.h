#pragma once
// The arithmetic of reductions over ranks, as a kernel.
#include <cstdint>
#include <span>

#include "runtime/dtype.h"
#include "runtime/reduce.h"

namespace coshard {

class CudaDevice;

// target[i] = sources[0][i] op sources[1][i] op … for i < count, on `stream` (cudaStream_t). At
// most 16 sources at a time; more are taken in turns, in order. The target may be a source.
void reduce_on_device(CudaDevice& device, DType dtype, Reduce reduce,
                      std::span<const void* const> sources, void* target, std::int64_t count,
                      void* stream);

}  // namespace coshard
