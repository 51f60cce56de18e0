#pragma once
// The device that tests run on: COSHARD_TEST_DEVICE (cpu, the default, or cuda) and
// COSHARD_TEST_COMMUNICATOR (local, the default, or nccl).
#include <cstdlib>
#include <string>

#include <coshard/runtime/launch/world.h>
#include "runtime/device/make_device.h"

namespace coshard::testing {

inline std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : otherwise;
}
inline DeviceKind test_device() {
  return parse_device_kind(variable("COSHARD_TEST_DEVICE", "cpu"));
}
inline bool on_cpu() { return test_device() == DeviceKind::Cpu; }
inline std::string test_communicator() { return variable("COSHARD_TEST_COMMUNICATOR", "local"); }

// Options of a world of `ranks` on the device under test.
inline WorldOptions test_options(int ranks) {
  WorldOptions options;
  options.ranks = ranks;
  options.threads = 1;
  options.device = test_device();
  options.communicator = on_cpu() ? "local" : test_communicator();
  return options;
}

}  // namespace coshard::testing
