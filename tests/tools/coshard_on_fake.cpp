// The coshard command on the fake driver. COSHARD_TEST_DEVICES: how many devices there are.
// COSHARD_TEST_DRIVER=null: on the one that does nothing, for what the host's own work costs:
//   COSHARD_TEST_DRIVER=null coshard_on_fake_cuda bench dispatch --device cuda --ranks 1
#include "tests/support/device.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/null_driver.h"
#include "tools/command.h"

int main(int argc, char** argv) {
  using coshard::testing::variable;
  if (variable("COSHARD_TEST_DRIVER", "") == "null") {
    coshard::testing::install_null_driver();
  } else {
    const int devices = std::stoi(variable("COSHARD_TEST_DEVICES", "1"));
    coshard::testing::FakeDriver::get().install(1, devices);
  }
  return coshard::tools::command(argc, argv);
}
