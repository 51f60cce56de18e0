// libcoshard's side of the module of kernels, and the module as it is installed. Its kernels are
// those for devices, so nothing is computed: the driver here does nothing and notes what is
// launched.
#include "kernels/cuda/module/module.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include <coshard/runtime/error.h>
#include <coshard/version.h>
#include "tests/support/fake_cuda/null_driver.h"

namespace coshard::kernels {
namespace {

using coshard::testing::install_null_driver;

CudaLaunch launched;
int launches = 0;

cudaError_t note_launch(const CudaLaunch& launch) {
  launched = launch;
  ++launches;
  return cudaSuccess;
}

// A device on the null driver, whose launches are noted.
class Module : public ::testing::Test {
 protected:
  void SetUp() override {
    install_null_driver();
    calls_ = coshard::cuda();
    calls_.Launch = note_launch;
    use_cuda(&calls_);
    launches = 0;
    device_ = std::make_shared<CudaDevice>(CudaOptions{});
  }
  void TearDown() override {
    device_ = nullptr;
    use_cuda(nullptr);
  }
  const CudaModule& module_ = open_cuda_module(COSHARD_CUDA_MODULE);
  std::shared_ptr<CudaDevice> device_;

 private:
  CudaApi calls_{};
};

template <class F>
std::string unsupported(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST_F(Module, IsOfThisVersionAndHasEveryKernel) {
  EXPECT_STREQ(module_.version, COSHARD_VERSION);
  EXPECT_EQ(module_.layout, kCudaLayout);
  int kernels = 0;
  for (const KernelEntry* k = module_.first_kernel(); k != nullptr; k = k->next) ++kernels;
  EXPECT_GT(kernels, 100);
  EXPECT_NE(module_.first_preparation(), nullptr);
#define X(Kernel) EXPECT_NE(module_.kernels->Kernel##_, nullptr);
  COSHARD_KERNELS(X)
#undef X
}

TEST_F(Module, HasItsOwnCudaRuntime) {
  const CudaApi& calls = module_.calls();
  int version = 0;
  EXPECT_EQ(calls.RuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
  EXPECT_EQ(&calls, &real_cuda());  // which has found it by LD_LIBRARY_PATH
}

TEST_F(Module, ItsKernelsAreLaunchedThroughTheHost) {
  const auto memory = device_->make_buffer(4000);
  run(*device_, Unary{UnaryOp::Exp, DType::F32, 1000, memory->data(), memory->data()});
  ASSERT_EQ(launches, 1);
  EXPECT_EQ(launched.stream, device_->compute_stream().native());
  bool known = false;
  for (const KernelEntry* k = module_.first_kernel(); k != nullptr; k = k->next)
    known = known || k == launched.entry;
  EXPECT_TRUE(known);
}

TEST_F(Module, ReducesAndCopiesForCommunicators) {
  const auto memory = device_->make_buffer(256);
  const void* sources[] = {memory->data(), memory->data()};
  reduce_on_device(*device_, DType::F32, Reduce::Sum, sources, memory->data(), 64, nullptr);
  EXPECT_EQ(launches, 1);
  const StridedCopy copy{memory->data(), memory->data(), 4, 16, 64, 64};
  copy_rows_on_device(*device_, {&copy, 1}, nullptr);
  EXPECT_EQ(launches, 2);
}

TEST_F(Module, ItsErrorsAreTheHosts) {
  const auto memory = device_->make_buffer(8);
  const std::string said = unsupported([&] {
    run(*device_, Unary{UnaryOp::Exp, DType::Bool, 8, memory->data(), memory->data()});
  });
  EXPECT_NE(said.find("bool"), std::string::npos) << said;
  EXPECT_EQ(launches, 0);
}

TEST(MissingModule, IsNamedWithWhereItBelongs) {
  const std::string said = unsupported([] { open_cuda_module("libcoshard_cuda_not_here.so"); });
  EXPECT_EQ(said.find("cannot load libcoshard_cuda_not_here.so ("), 0U) << said;
  EXPECT_NE(said.find("beside"), std::string::npos) << said;
  EXPECT_NE(said.find("LD_LIBRARY_PATH"), std::string::npos) << said;
}

TEST(MissingModule, AnotherLibraryOfItsNameHasNoEntry) {
  const std::string said = unsupported([] { open_cuda_module("libm.so.6"); });
  EXPECT_EQ(said.find("libm.so.6 has no coshard_cuda_module ("), 0U) << said;
}

TEST(MissingModule, OneOfAnotherVersionIsRefusedWithBothVersions) {
  const std::string said = unsupported([] { open_cuda_module(COSHARD_OTHER_VERSION); });
  EXPECT_NE(said.find("is of coshard 99.9.9 and libcoshard of " COSHARD_VERSION), std::string::npos)
      << said;
}

TEST(MissingModule, OneOfAnotherBuildOfThisVersionIsRefused) {
  const std::string said = unsupported([] { open_cuda_module(COSHARD_OTHER_BUILD); });
  EXPECT_NE(said.find("different builds of coshard " COSHARD_VERSION), std::string::npos) << said;
}

}  // namespace
}  // namespace coshard::kernels
