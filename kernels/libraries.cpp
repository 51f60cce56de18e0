#include "kernels/libraries.h"

#include "kernels/backends.h"

namespace coshard::kernels {

// Defined by each back end. Error{Unsupported}: a library is missing; the message says which.
#define X(name) Libraries name##_libraries();
COSHARD_KERNEL_BACKENDS(X)
#undef X

Libraries libraries_of(DeviceKind kind) {
#define X(name) \
  if (to_string(kind) == #name) return name##_libraries();
  COSHARD_KERNEL_BACKENDS(X)
#undef X
  return {};
}

}  // namespace coshard::kernels
