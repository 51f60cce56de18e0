#pragma once
// Which libraries the kernels of a back end use, and their versions, for people. Any thread.
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/device/device.h>
#include "kernels/backends.h"

namespace coshard::kernels {

using Libraries = std::vector<std::pair<std::string, std::string>>;  // "oneDNN": "2.6.3"

// What each back end defines.
#define X(name) Libraries name##_libraries();
COSHARD_KERNEL_BACKENDS(X)
#undef X

// Empty for a device kind without kernels in this build.
Libraries libraries_of(DeviceKind kind);

}  // namespace coshard::kernels
