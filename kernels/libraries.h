#pragma once
// The libraries that a back end's kernels use, and their versions, for display. Any thread.
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/device/device.h>

namespace coshard::kernels {

using Libraries = std::vector<std::pair<std::string, std::string>>;  // "oneDNN": "2.6.3"

// Empty for a device kind without kernels in this build. Error{Unsupported}: a library of the back
// end is missing; the message says which.
Libraries libraries_of(DeviceKind kind);

}  // namespace coshard::kernels
