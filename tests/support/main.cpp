// main() of the tests. On a device that this machine lacks it says so and ends with 77, which meson
// shows as a skip.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/device.h"

int main(int argc, char** argv) {
  using coshard::DeviceKind;
  ::testing::InitGoogleTest(&argc, argv);
  const DeviceKind device = coshard::testing::test_device();
  if (device != DeviceKind::Cpu && coshard::device_count(device) == 0) {
    std::printf("skipped: this machine has no %s device\n",
                std::string(coshard::to_string(device)).c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
