// Machines without a driver, or with an old one.
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include "kernels/run.h"
#include "runtime/device/make_device.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

TEST(CudaDevice, WithoutADriverOrWithAnOldOneTheErrorSaysWhichAndNamesTheDoctor) {
  FakeDriver::get().set_driver_version(0);
  const std::string none = error_text(ErrorKind::DeviceFailed, [] { fake_device(); });
  EXPECT_EQ(none,
            "cuda:0: this machine has no CUDA driver (libcuda.so.1); `coshard doctor` says what is "
            "missing");
  EXPECT_EQ(device_count(DeviceKind::Cuda), 0);
  FakeDriver::get().set_driver_version(11080);
  const std::string old = error_text(ErrorKind::DeviceFailed, [] { fake_device(); });
  EXPECT_NE(old.find("the CUDA driver supports CUDA 11.8, but this build needs CUDA "),
            std::string::npos)
      << old;
  FakeDriver::get().set_driver_version(CUDART_VERSION);
  FakeDriver::get().set_fault({.call = "GetDeviceCount", .error = cudaErrorInitializationError});
  const std::string broken = error_text(ErrorKind::DeviceFailed, [] { fake_device(); });
  EXPECT_NE(broken.find("no usable CUDA driver: cudaErrorInitializationError (3)"),
            std::string::npos)
      << broken;
}

}  // namespace
}  // namespace coshard::testing
