#include "runtime/device/finding.h"

#include <coshard/runtime/error.h>

namespace coshard {

std::string describe(FindingKind kind, std::int64_t value, std::int64_t limit) {
  switch (kind) {
    case FindingKind::EmbeddingId:
      return cat("embedding: id ", value, " is outside of a table of ", limit, " rows");
    case FindingKind::GatherIndex:
      return cat("gather: index ", value, " is outside a dimension of ", limit, " elements");
    case FindingKind::ScatterIndex:
      return cat("scatter: index ", value, " is outside a dimension of ", limit, " elements");
    case FindingKind::Target:
      return cat("cross entropy: target ", value, " is outside of ", limit, " classes");
    case FindingKind::Division: return cat("integer division of ", value, " by ", limit);
    case FindingKind::None: break;
  }
  return cat("value ", value, " is outside of ", limit);
}

}  // namespace coshard
