// Events that do not come.
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include "kernels/run.h"
#include "runtime/device/make_device.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

TEST(CudaDevice, AnEventThatNeverComesIsATimeoutThatNamesTheDevice) {
  const auto device = fake_device();
  device->set_timeout(50'000'000);
  const Numbers x(*device, 4);
  x.set({1, 2, 3, 4});
  FakeDriver::get().set_fault({.call = "Launch", .stuck = true});
  add_one(*device, x.data(), x.data(), 4, device->compute_stream());
  const std::string text = error_text(ErrorKind::Timeout, [&] { device->synchronize(); });
  EXPECT_NE(text.find("cuda:0: the device has not reached an event"), std::string::npos) << text;
  FakeDriver::get().clear_faults();
  EXPECT_EQ(x.get()[0], 2);  // and it goes on when the device does
}

}  // namespace
}  // namespace coshard::testing
