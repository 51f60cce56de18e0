#pragma once
// Creates a device by kind, from the back ends in this build.
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

// All that the library knows, also those that are not in this build: "cpu", "cuda".
std::vector<std::string> device_names();

// What a back end defines: a folder of this one, NAME, whose sources define `NAME_device_backend`
// and whose meson.build adds them and X(NAME); NAME is listed in meson.build beside this. Kernels
// for it, if there are any, are kernels/NAME. --device NAME selects it.
struct DeviceBackend {
  DeviceKind kind;
  std::shared_ptr<Device> (*make)(const DeviceChoice& choice);
  int (*count)();
  BackendDescription (*describe)();
};

}  // namespace coshard
