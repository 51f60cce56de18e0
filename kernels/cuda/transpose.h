#pragma once
// Copies whose two sides have neighbours along different dimensions. Used by the .cu files only.
#include "kernels/cuda/strided.h"

namespace coshard::kernels::cuda {

// Copies elements of `bytes` bytes each, the first view of `index` written from the second,
// through shared memory, so that both sides see whole rows. False, and nothing done, where that
// would not help: no two dimensions of at least 16 elements, of which one is dense in either view.
bool copy_transposed(CudaDevice& device, void* to, const void* from, std::size_t bytes,
                     const StridedIndex<2>& index);

}  // namespace coshard::kernels::cuda
