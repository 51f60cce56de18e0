#include <algorithm>

#include "dtensor/ops/op.h"

namespace coshard {

#define X(word) std::span<const OpDef* const> word##_ops();
#include "dtensor/ops/ops_list.h"
#undef X

std::span<const OpDef* const> all_operators() {
  static const std::vector<const OpDef*> all = [] {
    std::vector<const OpDef*> ops;
#define X(word) ops.insert(ops.end(), word##_ops().begin(), word##_ops().end());
#include "dtensor/ops/ops_list.h"
#undef X
    std::sort(ops.begin(), ops.end(), [](auto* a, auto* b) { return a->name < b->name; });
    return ops;
  }();
  return all;
}

}  // namespace coshard
