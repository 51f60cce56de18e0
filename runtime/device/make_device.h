#pragma once
// Makes a device by its kind, from whichever back ends this build has.
#include <memory>

#include <coshard/runtime/device/device.h>
#include "runtime/device/describe.h"

namespace coshard {

struct DeviceChoice {
  int index = 0;    // among the devices of the kind
  int threads = 1;  // OpenMP threads of the calling thread's kernels
};

// Error{Unsupported} for a kind that this build lacks, Error{DeviceFailed} for one that cannot
// start; never another kind instead. Called on the rank's thread.
std::shared_ptr<Device> make_device(DeviceKind kind, const DeviceChoice& choice);
// How many devices of the kind this machine has; 0 when its driver is missing.
int device_count(DeviceKind kind);
bool has_backend(DeviceKind kind);
// Error{Unsupported} as of make_device: a kind that this build lacks.
void check_backend(DeviceKind kind);

// What a back end of the name defines.
struct DeviceBackend {
  DeviceKind kind;
  std::shared_ptr<Device> (*make)(const DeviceChoice& choice);
  int (*count)();
  BackendDescription (*describe)();
};

}  // namespace coshard
