// main() of the tests. On a device that this machine lacks it says so and ends with 77, which meson
// shows as a skip. With COSHARD_TEST_WORLDS=N worlds have N ranks in each fake process.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/device.h"
#include "tests/support/fake_roster.h"

int main(int argc, char** argv) {
  using coshard::DeviceKind;
  ::testing::InitGoogleTest(&argc, argv);
  const DeviceKind device = coshard::testing::test_device();
  if (device != DeviceKind::Cpu && coshard::device_count(device) == 0) {
    std::printf("skipped: this machine has no %s device\n",
                std::string(coshard::to_string(device)).c_str());
    return 77;
  }
  if (const char* per_process = std::getenv("COSHARD_TEST_WORLDS"))
    coshard::testing::spread_worlds(std::atoi(per_process));
  return RUN_ALL_TESTS();
}
