#include "kernels/run.h"

#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

TEST(Run, PicksTheBodiesOfTheDeviceKind) {
  Data data(DType::F32, 3);
  run(*make_cpu_device(1), Fill{data.ptr(), DType::F32, 3, 2});
  EXPECT_EQ(data, Data::filled(DType::F32, 3, 2));
}

TEST(Run, RefusesADeviceKindWithoutKernels) {
  try {
    kernels_of(DeviceKind("tpu"));
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
  }
}

TEST(Run, RefusesAFloatingKernelOnIntegers) {
  Data x(DType::I32, 3);
  EXPECT_THROW(run(*make_cpu_device(1), Softmax{DType::I32, false, 1, 3, 1, x.ptr(), x.ptr()}),
               Error);
}

}  // namespace
}  // namespace coshard::kernels
