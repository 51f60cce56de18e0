#pragma once
// The libraries that a back end's kernels use, and their versions, for display. Any thread.
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/device/device.h>
#include "kernels/backends.h"

namespace coshard::kernels {

using Libraries = std::vector<std::pair<std::string, std::string>>;  // "oneDNN": "2.6.3"

// Defined by each back end. Error{Unsupported}: a library is missing; the message says which.
#define X(name) Libraries name##_libraries();
COSHARD_KERNEL_BACKENDS(X)
#undef X

// Empty for a device kind without kernels in this build. Throws as the back end's function.
Libraries libraries_of(DeviceKind kind);

}  // namespace coshard::kernels
