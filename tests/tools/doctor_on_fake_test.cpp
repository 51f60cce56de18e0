// `coshard doctor` where the fake driver says what there is.
#include <gtest/gtest.h>

#include <sstream>

#include "runtime/comm/make_communicator.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tools/doctor.h"

namespace coshard::tools {
namespace {

using coshard::testing::FakeDriver;

class DoctorOnFake : public ::testing::Test {
 protected:
  void TearDown() override {
    FakeDriver& driver = FakeDriver::get();
    driver.clear_faults();
    driver.set_driver_version(CUDART_VERSION);
    driver.set_devices(2);
    driver.set_peer_access(true);
  }
  void ask() {
    DoctorOptions options;
    options.device = "cuda";
    std::ostringstream out;
    code = doctor(options, out);
    text = out.str();
  }
  bool says(const std::string& part) const { return text.find(part) != std::string::npos; }

  int code = -1;
  std::string text;
};

TEST_F(DoctorOnFake, OneDeviceIsDescribedAndTried) {
  FakeDriver::get().set_devices(1);
  ask();
  EXPECT_EQ(code, 0) << text;
  EXPECT_TRUE(says("cuda driver    CUDA ")) << text;
  EXPECT_TRUE(says("cuBLASLt       1")) << text;
  EXPECT_EQ(says("nccl library   2."), has_communicator("nccl")) << text;
  EXPECT_EQ(says("; communicators ordered by events (NCCL_LAUNCH_ORDER_IMPLICIT not set)"),
            has_communicator("nccl"))
      << text;
  EXPECT_TRUE(says("compute capability 9.0, 4 SMs, 8.0 GiB")) << text;
  EXPECT_TRUE(says("PCI fade:3b:00.0, ECC on")) << text;
  EXPECT_TRUE(says("cuda queues    8 (CUDA_DEVICE_MAX_CONNECTIONS not set)")) << text;
  EXPECT_FALSE(says("cuda:1")) << text;
  EXPECT_FALSE(says("peer access")) << text;
  EXPECT_FALSE(says("problem")) << text;
}

TEST_F(DoctorOnFake, TwoDevicesSayWhetherTheyReachEachOther) {
  ask();
  EXPECT_EQ(code, 0) << text;
  EXPECT_TRUE(says("cuda:1         ")) << text;
  EXPECT_TRUE(says("peer access    cuda:0 reaches - y")) << text;
  EXPECT_TRUE(says("cuda:1 reaches y -")) << text;
  FakeDriver::get().set_peer_access(false);
  ask();
  EXPECT_TRUE(says("cuda:0 reaches - n")) << text;
}

TEST_F(DoctorOnFake, NoDevice) {
  FakeDriver::get().set_devices(0);
  ask();
  EXPECT_EQ(code, 1);
  EXPECT_TRUE(says("problem: cuda: this machine has no CUDA device: check `nvidia-smi -L`"))
      << text;
}

TEST_F(DoctorOnFake, NoDriver) {
  FakeDriver::get().set_driver_version(0);
  ask();
  EXPECT_EQ(code, 1);
  EXPECT_TRUE(says("cuda driver    none")) << text;
  EXPECT_TRUE(says("problem: cuda: this machine has no CUDA driver (libcuda.so.1): install"))
      << text;
}

TEST_F(DoctorOnFake, ADriverThatIsTooOld) {
  FakeDriver::get().set_driver_version(11080);
  ask();
  EXPECT_EQ(code, 1);
  EXPECT_TRUE(says("problem: cuda: the CUDA driver supports CUDA 11.8, but this build needs CUDA "))
      << text;
  EXPECT_TRUE(says("install a newer driver")) << text;
}

TEST_F(DoctorOnFake, ADeviceThatDoesNotWorkIsAProblem) {
  FakeDriver::get().set_devices(1);
  FakeDriver::get().set_fault(
      {.call = "StreamCreateWithPriority", .error = cudaErrorDevicesUnavailable});
  ask();
  EXPECT_EQ(code, 1);
  EXPECT_TRUE(says("problem: cuda:0: ")) << text;
  EXPECT_TRUE(says("cudaErrorDevicesUnavailable")) << text;
}

}  // namespace
}  // namespace coshard::tools
