// What nvtx_test runs to see streams named: makes a device of the fake driver, and a stream.
#include "runtime/device/make_device.h"
#include "tests/support/fake_cuda/fake_driver.h"

int main() {
  coshard::testing::FakeDriver::get().install(1, 1);
  const auto device = coshard::make_device(coshard::DeviceKind::Cuda, {});
  const auto stream = device->make_stream(coshard::StreamKind::Communication);
}
