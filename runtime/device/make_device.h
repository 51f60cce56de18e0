#pragma once
// Creation of devices by kind, from the back ends in this build.
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/device/device.h>
#include "runtime/device/describe.h"

namespace coshard {

struct DeviceChoice {
  int index = 0;    // among the devices of the kind
  int threads = 1;  // OpenMP threads of the calling thread's kernels
};

// Error{Unsupported} for a kind that is not in this build, Error{DeviceFailed} for one that cannot
// start; never falls back to another kind. Called on the rank's thread.
std::shared_ptr<Device> make_device(DeviceKind kind, const DeviceChoice& choice);
// How many devices of the kind this machine has; 0 without a driver.
int device_count(DeviceKind kind);
bool has_backend(DeviceKind kind);
// Error{Unsupported} as make_device, for a kind that is not in this build.
void check_backend(DeviceKind kind);

// All kinds that the library knows, including those not in this build: "cpu", "cuda".
std::vector<std::string> device_names();

// What a back end defines. Its sources are in a subdirectory NAME and define `NAME_device_backend`;
// NAME/meson.build adds them and X(NAME), and the meson.build in this directory lists NAME. Its
// kernels, if any, are in kernels/NAME. --device NAME selects it.
struct DeviceBackend {
  DeviceKind kind;
  std::shared_ptr<Device> (*make)(const DeviceChoice& choice);
  int (*count)();
  BackendDescription (*describe)();
};

}  // namespace coshard
