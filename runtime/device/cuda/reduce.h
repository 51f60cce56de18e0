#pragma once
// The arithmetic of reductions over ranks, as a kernel.
#include <cstdint>
#include <span>

#include <coshard/runtime/dtype.h>
#include <coshard/runtime/reduce.h>

namespace coshard {

class CudaDevice;

// target[i] = sources[0][i] op sources[1][i] op … for i < count, on `stream` (cudaStream_t). The
// target may be a source. Error{Unsupported}: more than 128 sources.
void reduce_on_device(CudaDevice& device, DType dtype, Reduce reduce,
                      std::span<const void* const> sources, void* target, std::int64_t count,
                      void* stream);

}  // namespace coshard
