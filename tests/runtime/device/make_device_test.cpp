// Devices by their kind on the machine at hand, and what is said of one that is not there.
#include "runtime/device/make_device.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(MakeDevice, TheCpuIsThereAndDescribesItself) {
  EXPECT_TRUE(has_backend(DeviceKind::Cpu));
  EXPECT_EQ(device_count(DeviceKind::Cpu), 1);
  const BackendDescription host = describe_backend(DeviceKind::Cpu);
  EXPECT_EQ(host.problem, "");
  ASSERT_EQ(host.devices.size(), 1U);
  EXPECT_FALSE(host.devices[0].name.empty());
  EXPECT_GE(host.devices[0].multiprocessors, 1);
  EXPECT_GT(host.devices[0].memory, host.devices[0].free_memory);
}

TEST(MakeDevice, KindsAreReadByTheirNames) {
  EXPECT_EQ(device_names(), (std::vector<std::string>{"cpu", "cuda"}));
  for (const std::string& name : device_names()) EXPECT_EQ(parse_device_kind(name).name(), name);
  try {
    parse_device_kind("tpu");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_STREQ(error.what(), "unknown device 'tpu'; expected cpu or cuda");
  }
}

TEST(MakeDevice, AKindThatThisBuildLacksIsUnsupportedAndSaysHowToGetIt) {
  try {
    make_device(DeviceKind("tpu"), {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    EXPECT_STREQ(error.what(), "device 'tpu' is unknown; expected cpu or cuda");
  }
  if (!has_backend(DeviceKind::Cuda)) {
    EXPECT_EQ(describe_backend(DeviceKind::Cuda).hint,
              "configure it with `meson setup -Dcuda=enabled`");
  }
}

// A build with CUDA on a machine without a driver starts, and says what is missing.
TEST(MakeDevice, CudaWithoutADriverNamesTheDriverAndTheDoctor) {
  if (!has_backend(DeviceKind::Cuda)) GTEST_SKIP() << "this build has no cuda device";
  if (device_count(DeviceKind::Cuda) > 0) GTEST_SKIP() << "this machine has a CUDA device";
  const std::string problem = describe_backend(DeviceKind::Cuda).problem;
  EXPECT_NE(problem.find("CUDA"), std::string::npos);
  try {
    make_device(DeviceKind::Cuda, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::DeviceFailed);
    EXPECT_EQ(std::string(error.what()),
              "cuda:0: " + problem + "; `coshard doctor` says what is missing");
  }
}

}  // namespace
}  // namespace coshard
