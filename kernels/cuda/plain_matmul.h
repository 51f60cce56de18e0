#pragma once
// Matmuls that no library supports: integers, and k == 0.
#include "kernels/cuda/cuda.h"

namespace coshard::kernels::cuda {

// Any dtype and strides, without the epilogue; one thread per result. `out` must not be empty.
void run_plain(CudaDevice& device, const Matmul& args);

}  // namespace coshard::kernels::cuda
