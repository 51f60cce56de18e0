#pragma once
// Copies whose two sides are contiguous along different dimensions. Used by the .cu files only.
#include "kernels/cuda/strided.h"

namespace coshard::kernels::cuda {

// Copies elements of `bytes` bytes each, the first view of `index` written from the second,
// through shared memory, so that both sides access whole rows. False, with nothing done, if that
// would not help: it needs two dimensions of at least 16 elements, one dense in each view.
bool copy_transposed(CudaDevice& device, void* to, const void* from, std::size_t bytes,
                     const StridedIndex<2>& index);

}  // namespace coshard::kernels::cuda
