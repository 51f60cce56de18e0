// The coshard command on the fake driver. COSHARD_TEST_DEVICES: how many devices there are.
#include "tests/support/device.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tools/command.h"

int main(int argc, char** argv) {
  using coshard::testing::variable;
  coshard::testing::FakeDriver::get().install(1, std::stoi(variable("COSHARD_TEST_DEVICES", "1")));
  return coshard::tools::command(argc, argv);
}
