// The table by which a device of the host runs kernels.
#include <gtest/gtest.h>

#include "kernels/run.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {

extern const KernelTable cpu_kernels;

namespace {

using namespace testing;

TEST(CpuTable, HasABodyForEveryKernel) {
  EXPECT_EQ(cpu_kernels.kind, DeviceKind::Cpu);
  EXPECT_EQ(&kernels_of(DeviceKind::Cpu), &cpu_kernels);
#define X(Kernel) EXPECT_NE(cpu_kernels.Kernel##_, nullptr) << #Kernel;
  COSHARD_KERNELS(X)
#undef X
}

TEST(CpuTable, RunsItsKernelWhereItIsCalled) {
  const std::shared_ptr<Device> device = make_cpu_device(1);
  Data data(DType::F32, 2);
  cpu_kernels.Fill_(*device, Fill{data.ptr(), DType::F32, 2, 3});
  EXPECT_EQ(data.get(1), 3);
}

}  // namespace
}  // namespace coshard::kernels
