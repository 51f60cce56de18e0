#include "tests/support/fake_cuda/null_driver.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <utility>

#include "kernels/cuda/lt_api.h"
#include "runtime/device/cuda/api.h"

namespace coshard::testing {
namespace {

template <class Function>
struct Nothing;
template <class Result, class... Arguments>
struct Nothing<Result (*)(Arguments...)> {
  static Result call(Arguments...) { return Result{}; }
};

// Free lists per power of two; a block is preceded by its size. Per thread: timed code runs on one.
struct Block {
  std::size_t shift = 0;
  Block* next = nullptr;
};
constexpr std::size_t kHead = 512;
thread_local std::array<Block*, 64> blocks{};

cudaError_t allocate(void** data, std::size_t bytes) {
  const auto shift = static_cast<std::size_t>(std::bit_width(bytes + kHead));
  Block*& first = blocks[shift];
  Block* block = first;
  if (block != nullptr) {
    first = block->next;
  } else {
    block = new (std::aligned_alloc(kHead, std::size_t{1} << shift)) Block{shift};
  }
  *data = reinterpret_cast<char*>(block) + kHead;
  return cudaSuccess;
}

cudaError_t release(void* data) {
  if (data == nullptr) return cudaSuccess;
  auto* block = reinterpret_cast<Block*>(static_cast<char*>(data) - kHead);
  block->next = std::exchange(blocks[block->shift], block);
  return cudaSuccess;
}

cudaError_t allocate_pinned(void** data, std::size_t bytes, unsigned) {
  return allocate(data, bytes);
}
cudaError_t allocate_async(void** data, std::size_t bytes, cudaMemPool_t, cudaStream_t) {
  return allocate(data, bytes);
}
cudaError_t release_async(void* data, cudaStream_t) { return release(data); }

cudaError_t one(int* value) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t zero(int* value) {
  *value = 0;
  return cudaSuccess;
}
cudaError_t version(int* value) {
  *value = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t attribute(int* value, cudaDeviceAttr which, int) {
  *value = which == cudaDevAttrMultiProcessorCount ? 132 : 9;  // about an H100
  return cudaSuccess;
}
cudaError_t memory_info(std::size_t* left, std::size_t* all) {
  *left = *all = std::size_t{64} << 30;
  return cudaSuccess;
}
const char* text(cudaError_t) { return "none"; }

template <class Handle>
cublasStatus_t make(Handle* handle) {
  static int nothing = 0;
  *handle = reinterpret_cast<Handle>(&nothing);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t make_description(cublasLtMatmulDesc_t* description, cublasComputeType_t,
                                cudaDataType_t) {
  return make(description);
}
cublasStatus_t make_layout(cublasLtMatrixLayout_t* layout, cudaDataType, std::uint64_t,
                           std::uint64_t, std::int64_t) {
  return make(layout);
}
cublasStatus_t choose(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                      cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* results,
                      int* count) {
  results[0] = {};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

CudaApi cuda_table() {
  CudaApi api{};
#define X(name) api.name = Nothing<decltype(CudaApi::name)>::call;
  COSHARD_CUDA_CALLS(X)
#undef X
  api.DeviceName = Nothing<decltype(CudaApi::DeviceName)>::call;
  api.Launch = Nothing<decltype(CudaApi::Launch)>::call;
  api.GetDeviceCount = one;
  api.GetDevice = zero;
  api.DriverGetVersion = api.RuntimeGetVersion = version;
  api.DeviceGetAttribute = attribute;
  api.GetErrorName = api.GetErrorString = text;
  api.HostAlloc = allocate_pinned;
  api.FreeHost = release;
  api.MallocFromPoolAsync = allocate_async;
  api.FreeAsync = release_async;
  api.MemGetInfo = memory_info;
  return api;
}

CublasLtApi lt_table() {
  CublasLtApi api{};
#define X(name) api.name = Nothing<decltype(CublasLtApi::name)>::call;
  COSHARD_LT_CALLS(X)
#undef X
  api.Create = make<cublasLtHandle_t>;
  api.MatmulDescCreate = make_description;
  api.MatrixLayoutCreate = make_layout;
  api.MatmulPreferenceCreate = make<cublasLtMatmulPreference_t>;
  api.MatmulAlgoGetHeuristic = choose;
  return api;
}

}  // namespace

void install_null_driver() {
  static const CudaApi calls = cuda_table();
  static const CublasLtApi products = lt_table();
  use_cuda(&calls);
  use_cublas_lt(&products);
}

}  // namespace coshard::testing
