// main() of the tests. If this machine lacks the device, says so and exits with 77, which meson
// reports as a skip. COSHARD_TEST_WORLDS: how worlds are spread over processes (spread.h); reports
// at the end how many were.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <coshard/runtime/error.h>
#include "tests/support/device.h"
#include "tests/support/spread.h"

int main(int argc, char** argv) {
  using coshard::DeviceKind;
  ::testing::InitGoogleTest(&argc, argv);
  const DeviceKind device = coshard::testing::test_device();
  if (device != DeviceKind::Cpu && coshard::device_count(device) == 0) {
    std::printf("skipped: this machine has no %s device\n",
                std::string(coshard::to_string(device)).c_str());
    return 77;
  }
  try {
    if (const char* how = std::getenv("COSHARD_TEST_WORLDS")) coshard::testing::spread_worlds(how);
    const int failed = RUN_ALL_TESTS();
    if (const std::string spread = coshard::testing::worlds_that_were_spread(); !spread.empty())
      std::printf("worlds: %s\n", spread.c_str());
    return failed;
  } catch (const coshard::Error& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
