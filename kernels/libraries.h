#pragma once
// The libraries that a back end's kernels use, and their versions, for people. Any thread.
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/device/device.h>
#include "kernels/backends.h"

namespace coshard::kernels {

using Libraries = std::vector<std::pair<std::string, std::string>>;  // "oneDNN": "2.6.3"

// What each back end defines. Error{Unsupported}: a library is missing; the text says which.
#define X(name) Libraries name##_libraries();
COSHARD_KERNEL_BACKENDS(X)
#undef X

// Empty for a device kind without kernels in this build. Fails as the back end's.
Libraries libraries_of(DeviceKind kind);

}  // namespace coshard::kernels
