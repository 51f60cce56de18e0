#pragma once
// The arithmetic of the fake cuBLASLt: a matmul with its epilogue.
#include <cstdint>

#include "kernels/cuda/lt_api.h"

namespace coshard::testing {

struct FakeLayout {
  cudaDataType_t type;
  std::int64_t rows, columns, ld, batch = 1, stride = 0;
};
struct FakeDesc {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_stride = 0;
  std::int32_t multiprocessors = 0;
};
// All parameters of a matmul, copied when it is queued.
struct FakeProduct {
  FakeDesc desc;
  FakeLayout a, b, c, d;
  double alpha = 1, beta = 0;
  const void *left = nullptr, *right = nullptr, *old = nullptr;
  void* result = nullptr;
  int slices = 1;       // of each sum
  bool rounds = false;  // which are added in the dtype of the result

  std::int64_t depth() const { return desc.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
  bool has(std::uint32_t epilogue) const { return (desc.epilogue & epilogue) == epilogue; }
};

// Sums in f32 (f64 for f64), in as many slices as the algorithm says, which are then added: so
// another algorithm differs in the last bits, as on a device.
void compute(const FakeProduct& product);

}  // namespace coshard::testing
