#include "kernels/sim/table.h"

#include <gtest/gtest.h>

#include "runtime/device/sim/virtual_device.h"

namespace coshard::kernels {
namespace {

TEST(SimKernels, OnlyTakeTime) {
  add_sim_kernels();
  add_sim_kernels();
  ProcessorModel model;
  model.memory_rate = 1e9;
  const auto device = std::make_shared<VirtualDevice>(model);
  const auto buffer = device->make_buffer(4000);
  run(*device, Fill{buffer->data(), DType::F32, 1000, 1.0});
  EXPECT_EQ(device->compute_stream().now, 4000);
}

TEST(SimKernels, AnotherTableCannotTakeTheirPlace) {
  add_sim_kernels();
  static const KernelTable other{DeviceKind("abacus")};
  EXPECT_THROW(add_kernels(other), Error);
  EXPECT_THROW(kernels_of(DeviceKind("abacus")), Error);
}

}  // namespace
}  // namespace coshard::kernels
