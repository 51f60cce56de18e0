#include "runtime/device/device_assert.h"

#include <coshard/runtime/error.h>

namespace coshard {

std::string describe(DeviceAssertKind kind, std::int64_t value, std::int64_t limit) {
  switch (kind) {
    case DeviceAssertKind::EmbeddingId:
      return str_cat("embedding: id ", value, " is out of bounds for a table of ", limit, " rows");
    case DeviceAssertKind::GatherIndex:
      return str_cat("gather: index ", value, " is out of bounds for a dimension of size ", limit);
    case DeviceAssertKind::ScatterIndex:
      return str_cat("scatter: index ", value, " is out of bounds for a dimension of size ", limit);
    case DeviceAssertKind::Target:
      return str_cat("cross_entropy: target ", value, " is out of bounds for ", limit, " classes");
    case DeviceAssertKind::Division:
      return str_cat("integer division by zero: ", value, " / ", limit);
    case DeviceAssertKind::None: break;
  }
  return str_cat("value ", value, " is out of bounds for ", limit);
}

}  // namespace coshard
