#pragma once
// GEMMs through cuBLASLt on one device: the library's handle, its workspace, and a cached plan
// (descriptors and the chosen algorithm) for each kind of GEMM, independent of other work in flight
// on the device, so that equal GEMMs give equal bits. Kept by the device as an extension and
// destroyed with it; used on the rank's thread.
#include <array>
#include <memory>
#include <unordered_map>

#include <coshard/runtime/dtype.h>
#include "kernels/cuda/lt_api.h"
#include "runtime/device/cuda/cuda_device.h"

namespace coshard::kernels::cuda {

// A matrix in the library's layout: column-major, `ld` elements from one column to the next.
struct LtMatrix {
  const void* data = nullptr;
  std::int64_t rows = 0, columns = 0, ld = 0, batch_stride = 0;
};

// d = epilogue(alpha * op(a) @ op(b) + beta * d), m x k by k x n, over a batch. Not empty.
struct LtProduct {
  DType dtype = DType::F32;  // of all matrices, bias and aux
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  LtMatrix a, b, d;
  bool transpose_a = false, transpose_b = false;
  double alpha = 1, beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;  // m elements; written by the bias gradient epilogues
  void* aux = nullptr;         // m x n, column-major and dense
};

class LtContext {
 public:
  // The device's context, created at the first call. Error{DeviceFailed} if the library cannot be
  // initialised.
  static LtContext& of(CudaDevice& device);
  explicit LtContext(CudaDevice& device);
  ~LtContext();
  LtContext(const LtContext&) = delete;
  LtContext& operator=(const LtContext&) = delete;

  // Queues the GEMM on the compute stream; false, with nothing queued, if the library has no
  // algorithm for it. Error{DeviceFailed} names the GEMM.
  bool run(const LtProduct& product);

 private:
  struct Plan;
  static constexpr std::size_t kMaxPlans = 4096;  // then the cache is cleared
  using Key = std::array<std::int64_t, 15>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  Key key_of(const LtProduct& product) const;
  Plan& plan_of(const LtProduct& product);
  void choose_algorithm(Plan& plan, const LtProduct& product) const;
  std::size_t workspace_bytes() const;
  void* workspace();

  CudaDevice& device_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;  // allocated when an algorithm first needs it
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
};

}  // namespace coshard::kernels::cuda
