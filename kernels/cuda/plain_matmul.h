#pragma once
// Products that no library takes: integers, and those over no elements (k == 0).
#include "kernels/cuda/cuda.h"

namespace coshard::kernels::cuda {

// Any dtype and strides, without the epilogue; a thread for each result. Not empty.
void run_plain(CudaDevice& device, const Matmul& args);

}  // namespace coshard::kernels::cuda
