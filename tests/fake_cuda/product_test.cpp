// The fake cuBLASLt: an algorithm is valid for its problem only; others differ in the last bits.
#include <cmath>
#include <set>

#include "kernels/cuda/lt_api.h"
#include "tests/fake_cuda/raw_driver.h"

namespace coshard::testing {
namespace {

constexpr int kDepth = 997;

class FakeProducts : public RawDriver {
 protected:
  void SetUp() override {
    RawDriver::SetUp();
    ASSERT_EQ(cuda().Malloc(&memory_, std::size_t{1} << 20), cudaSuccess);
    ASSERT_EQ(cublas_lt().Create(&handle_), CUBLAS_STATUS_SUCCESS);
    stream_ = make_stream();
  }
  void TearDown() override {
    EXPECT_EQ(cublas_lt().Destroy(handle_), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cuda().Free(memory_), cudaSuccess);
    RawDriver::TearDown();
  }
  float* at(int index) { return static_cast<float*>(memory_) + index; }

  // The product of three rows (for which the first algorithm can run) and one column, by the
  // algorithm for this many multiprocessors.
  cublasStatus_t multiply(std::int32_t multiprocessors, float& result) {
    const CublasLtApi& lt = cublas_lt();
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    lt.MatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    lt.MatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &multiprocessors,
                              sizeof multiprocessors);
    lt.MatrixLayoutCreate(&a, CUDA_R_32F, 3, kDepth, 3);
    lt.MatrixLayoutCreate(&b, CUDA_R_32F, kDepth, 1, kDepth);
    lt.MatrixLayoutCreate(&d, CUDA_R_32F, 3, 1, 3);
    lt.MatmulPreferenceCreate(&preference);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    lt.MatmulAlgoGetHeuristic(handle_, desc, a, b, d, d, preference, 1, &found, &count);
    const float one = 1, none = 0;
    float* out = at(8 * 1024);
    const cublasStatus_t status =
        lt.Matmul(handle_, desc, &one, at(0), a, at(4096), b, &none, out, d, out, d, &found.algo,
                  at(64 * 1024), found.workspaceSize, stream_);
    EXPECT_EQ(cuda().StreamSynchronize(stream_), cudaSuccess);
    result = *out;
    lt.MatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {a, b, d}) lt.MatrixLayoutDestroy(layout);
    lt.MatmulDescDestroy(desc);
    return status;
  }

 private:
  void* memory_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(FakeProducts, AnotherChoiceOfAlgorithmHasAnotherLastBit) {
  for (int i = 0; i < 3 * kDepth; ++i) at(i)[0] = std::sin(static_cast<float>(i));
  for (int i = 0; i < kDepth; ++i) at(4096 + i)[0] = std::cos(static_cast<float>(i));
  std::set<float> results;
  for (int multiprocessors = 0; multiprocessors < 8; ++multiprocessors) {
    float first = 0, again = 0;
    EXPECT_EQ(multiply(multiprocessors, first), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(multiply(multiprocessors, again), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(first, again);
    results.insert(first);
  }
  EXPECT_GT(results.size(), 1U);
  EXPECT_LT(*results.rbegin() - *results.begin(), 1e-3F);
}

TEST_F(FakeProducts, NeedTheDeviceOfTheirHandleAndStream) {
  float result = 0;
  EXPECT_EQ(cuda().SetDevice(1), cudaSuccess);
  EXPECT_EQ(multiply(0, result), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(driver.take_complaints(), std::vector<std::string>{"cublasLtMatmul: wrong arguments"});
}

}  // namespace
}  // namespace coshard::testing
