#include "kernels/libraries.h"

namespace coshard::kernels {

Libraries libraries_of(DeviceKind kind) {
#define X(name) \
  if (to_string(kind) == #name) return name##_libraries();
  COSHARD_KERNEL_BACKENDS(X)
#undef X
  return {};
}

}  // namespace coshard::kernels
