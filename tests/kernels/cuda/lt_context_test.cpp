// Products through cuBLASLt under faults: every call of the library fails once, the error is typed
// and names the call, and the next device works.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lt_api.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

kernels::View matrix(const Numbers& numbers, std::int64_t rows, std::int64_t columns) {
  return {numbers.data(), DType::F32, 2, {rows, columns}, {columns, 1}};
}

// [4, 100] of ones by [100, 8] of ones plus a bias of ones.
void multiply_ones() {
  const auto device = fake_device();
  const Numbers a(*device, 400), b(*device, 800), out(*device, 32), bias(*device, 8);
  for (const Numbers* numbers : {&a, &b, &bias})
    numbers->set(std::vector<float>(numbers->count, 1));
  kernels::Matmul product{matrix(out, 4, 8), matrix(a, 4, 100), matrix(b, 100, 8)};
  product.bias = bias.data();
  kernels::cuda::run(*device, product);
  EXPECT_EQ(out.get(), std::vector<float>(32, 101));
}

class EveryLtCall : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryLtCall, ThatFailsIsATypedErrorAndTheNextDeviceWorks) {
  FakeDriver::get().reset_counts();
  multiply_ones();
  const auto calls = FakeDriver::get().calls(GetParam());
  ASSERT_GT(calls, 0U) << "a product does not call " << GetParam();
  for (std::uint64_t after = 0; after < calls; ++after) {
    FakeDriver::get().set_fault({.call = GetParam(),
                                 .after = static_cast<int>(after),
                                 .error = CUBLAS_STATUS_ALLOC_FAILED});
    const std::string text = error_text(ErrorKind::DeviceFailed, multiply_ones);
    EXPECT_NE(text.find(GetParam()), std::string::npos) << text;
    EXPECT_NE(text.find("CUBLAS_STATUS_ALLOC_FAILED"), std::string::npos) << text;
    FakeDriver::get().clear_faults();
    multiply_ones();
  }
}

INSTANTIATE_TEST_SUITE_P(
    CublasLt, EveryLtCall,
    ::testing::Values("cublasLtCreate", "cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic",
                      "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute",
                      "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute",
                      "cublasLtMatrixLayoutCreate"),
    [](const auto& info) { return std::string(info.param); });

class EveryLtEnd : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryLtEnd, ThatFailsIsLoggedAndDoesNotThrow) {
  FakeDriver::get().set_fault({.call = GetParam(), .error = CUBLAS_STATUS_ALLOC_FAILED});
  ::testing::internal::CaptureStderr();
  multiply_ones();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(std::string("coshard: ") + GetParam()), std::string::npos) << said;
  FakeDriver::get().clear_faults();
}

INSTANTIATE_TEST_SUITE_P(CublasLt, EveryLtEnd,
                         ::testing::Values("cublasLtDestroy", "cublasLtMatmulDescDestroy",
                                           "cublasLtMatmulPreferenceDestroy",
                                           "cublasLtMatrixLayoutDestroy"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CublasLt, IsWarmedUpInEveryDtype) {
  FakeDriver::get().reset_counts();
  const auto device = fake_device();
  EXPECT_EQ(FakeDriver::get().calls("cublasLtMatmul"), 4U);  // f32, bf16, f16, f64
}

// The library may split a sum, and add the parts in bf16 unless told otherwise: on an H200, shapes
// differed by a unit in the last place from the rounded exact sum.
TEST(CublasLt, SumsOfBf16AreRoundedOnce) {
  const auto device = fake_device();
  for (std::int64_t rows = 1; rows <= 16; ++rows) {
    const auto matrix_of = [&](const Numbers& numbers, std::int64_t m, std::int64_t n) {
      return kernels::View{numbers.data(), DType::BF16, 2, {m, n}, {n, 1}};
    };
    const std::int64_t depth = 96, columns = 8;
    const auto filled = [&](std::int64_t count) {
      std::vector<BFloat16> values;
      for (std::int64_t i = 0; i < count; ++i)
        values.emplace_back(static_cast<float>((i * 7 + 3) % 31 - 9));
      return values;
    };
    const std::vector<BFloat16> left = filled(rows * depth), right = filled(depth * columns);
    const Numbers a(*device, static_cast<std::size_t>(rows * depth / 2));
    const Numbers b(*device, static_cast<std::size_t>(depth * columns / 2));
    const Numbers out(*device, static_cast<std::size_t>(rows * columns / 2));
    device->upload(a.data(), left.data(), left.size() * sizeof left[0]);
    device->upload(b.data(), right.data(), right.size() * sizeof right[0]);
    kernels::cuda::run(*device,
                       kernels::Matmul{matrix_of(out, rows, columns), matrix_of(a, rows, depth),
                                       matrix_of(b, depth, columns)});
    std::vector<BFloat16> got(static_cast<std::size_t>(rows * columns));
    device->download(got.data(), out.data(), got.size() * sizeof got[0]);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        float sum = 0;  // exact: small integers
        for (std::int64_t k = 0; k < depth; ++k)
          sum += static_cast<float>(left[static_cast<std::size_t>(i * depth + k)]) *
                 static_cast<float>(right[static_cast<std::size_t>(k * columns + j)]);
        ASSERT_EQ(static_cast<float>(got[static_cast<std::size_t>(i * columns + j)]),
                  static_cast<float>(BFloat16(sum)))
            << rows << " rows, at " << i << ", " << j;
      }
    }
  }
}

TEST(CublasLt, AProductTakesOneCallOfTheLibraryOnceItIsKnown) {
  const auto device = fake_device();
  const Numbers a(*device, 400), b(*device, 800), out(*device, 32);
  const kernels::Matmul product{matrix(out, 4, 8), matrix(a, 4, 100), matrix(b, 100, 8)};
  kernels::cuda::run(*device, product);
  FakeDriver::get().reset_counts();
  for (int i = 0; i < 5; ++i) kernels::cuda::run(*device, product);
  EXPECT_EQ(FakeDriver::get().calls("cublasLtMatmul"), 5U);
  EXPECT_EQ(FakeDriver::get().calls("GetDevice"), 5U);
  EXPECT_EQ(FakeDriver::get().calls(""), 10U);
  device->synchronize();
}

TEST(CublasLt, AnAlgorithmThatTheLibraryTakesBackIsNotAskedForAgain) {
  const auto device = fake_device();
  const Numbers a(*device, 400), b(*device, 800), out(*device, 32);
  const kernels::Matmul product{matrix(out, 4, 8), matrix(a, 4, 100), matrix(b, 100, 8)};
  FakeDriver::get().set_fault({.call = "cublasLtMatmul", .error = CUBLAS_STATUS_NOT_SUPPORTED});
  FakeDriver::get().reset_counts();
  for (int i = 0; i < 2; ++i) {
    const std::string text =
        error_text(ErrorKind::Unsupported, [&] { kernels::cuda::run(*device, product); });
    EXPECT_NE(text.find("no algorithm"), std::string::npos) << text;
  }
  EXPECT_EQ(FakeDriver::get().calls("cublasLtMatmulAlgoGetHeuristic"), 1U);
  FakeDriver::get().clear_faults();
}

}  // namespace
}  // namespace coshard::testing
