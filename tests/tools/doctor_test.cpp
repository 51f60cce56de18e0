// `coshard doctor` on the machine at hand.
#include "tools/doctor.h"

#include <gtest/gtest.h>

#include <sstream>

#include <coshard/runtime/error.h>
#include "runtime/device/has_nvtx.h"
#include "runtime/device/make_device.h"

namespace coshard::tools {
namespace {

struct Answer {
  int code;
  std::string text;
  bool says(const std::string& part) const { return text.find(part) != std::string::npos; }
};

Answer ask(const DoctorOptions& options) {
  std::ostringstream out;
  const int code = doctor(options, out);
  return {code, out.str()};
}

TEST(Doctor, SaysWithWhatItWasBuiltAndWhatItHas) {
  const Answer answer = ask({});
  EXPECT_EQ(answer.code, 0) << answer.text;
  EXPECT_TRUE(answer.says("compiler ")) << answer.text;
  EXPECT_TRUE(answer.says("build          coshard 0.")) << answer.text;
  EXPECT_TRUE(answer.says(" threads, ")) << answer.text;
  EXPECT_TRUE(answer.says("oneDNN ")) << answer.text;
  EXPECT_TRUE(answer.says("communicators  local")) << answer.text;
  EXPECT_TRUE(answer.says(COSHARD_HAS_NVTX ? "NVTX           built in" : "NVTX           not"))
      << answer.text;
}

TEST(Doctor, TheCpuWorks) { EXPECT_EQ(ask({.device = "cpu", .communicator = "local"}).code, 0); }

TEST(Doctor, ADeviceThatIsMissingIsAProblemOnlyWhereItWasAskedFor) {
  if (device_count(DeviceKind::Cuda) > 0) GTEST_SKIP() << "this machine has a CUDA device";
  const Answer asked = ask({.device = "cuda"});
  EXPECT_EQ(asked.code, 1);
  EXPECT_TRUE(asked.says("problem: cuda: ")) << asked.text;
  EXPECT_TRUE(
      asked.says(has_backend(DeviceKind::Cuda) ? "this machine has no CUDA" : "-Dcuda=enabled"))
      << asked.text;
  const Answer other = ask({});
  EXPECT_EQ(other.code, 0);
  EXPECT_TRUE(other.says("note: cuda: ")) << other.text;
  EXPECT_FALSE(other.says("problem: ")) << other.text;
}

TEST(Doctor, AModuleOfAnMpiThatIsMissingIsNamedWithItsPlaces) {
  EXPECT_FALSE(ask({}).says("its module is missing"));
  DoctorOptions options;
  options.mpis.emplace_back("somempi");
  const Answer answer = ask(options);
  EXPECT_EQ(answer.code, 0);
  EXPECT_TRUE(answer.says("problem: somempi: its module is missing, /")) << answer.text;
  EXPECT_TRUE(answer.says("/libcoshard_somempi.so: install it from")) << answer.text;
}

TEST(Doctor, ACommunicatorThatThisBuildLacksIsAProblem) {
  const Answer answer = ask({.communicator = "mpi"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_TRUE(answer.says("problem: communicator 'mpi': this build has local")) << answer.text;
}

TEST(Doctor, AnUnknownDeviceIsBadInput) {
  try {
    ask({.device = "gpu"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_NE(std::string(error.what()).find("gpu"), std::string::npos);
  }
}

}  // namespace
}  // namespace coshard::tools
