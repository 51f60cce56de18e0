#include "runtime/device/finding.h"

#include <coshard/runtime/error.h>

namespace coshard {

std::string describe(FindingKind kind, std::int64_t value, std::int64_t limit) {
  switch (kind) {
    case FindingKind::EmbeddingId:
      return str_cat("embedding: id ", value, " is out of bounds for a table of ", limit, " rows");
    case FindingKind::GatherIndex:
      return str_cat("gather: index ", value, " is out of bounds for a dimension of size ", limit);
    case FindingKind::ScatterIndex:
      return str_cat("scatter: index ", value, " is out of bounds for a dimension of size ", limit);
    case FindingKind::Target:
      return str_cat("cross_entropy: target ", value, " is out of bounds for ", limit, " classes");
    case FindingKind::Division: return str_cat("integer division by zero: ", value, " / ", limit);
    case FindingKind::None: break;
  }
  return str_cat("value ", value, " is out of bounds for ", limit);
}

}  // namespace coshard
