#pragma once
// cuBLASLt without a GPU: fills its table (kernels/cuda/lt_api.h). A matmul is queued on the fake
// driver's stream and computed with plain loops in f64 from the descriptors alone, so a wrong
// leading dimension, transpose, stride or epilogue shows as a wrong number. Calls are counted and
// made to fail under their full name ("cublasLtMatmul"). Part of FakeDriver::install.

namespace coshard::testing {

void install_cublas_lt();

}  // namespace coshard::testing
