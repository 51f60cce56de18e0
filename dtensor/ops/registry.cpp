// The operators of the library, and the rules that stand for those of some of them.
#include <algorithm>
#include <map>
#include <set>

#include "dtensor/ops/op.h"
#include "runtime/coro/rank_context.h"

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

namespace {

struct Rules {
  std::map<const OpDef*, RuleFunction> registered;
  std::set<const OpDef*> used;  // what they decided is remembered
};
const RankLocal<Rules> rules;

}  // namespace

void register_sharding(std::string_view name, RuleFunction rule) {
  CS_REQUIRE(rule, "register_sharding: ", name, ": no rule");
  const auto all = all_operators();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](auto* op) { return op->name == name; });
  CS_REQUIRE(found != all.end(), "register_sharding: there is no operator '", name, "'");
  CS_REQUIRE(!rules->used.contains(*found), "register_sharding: ", name,
             " has been used on DTensors already; register before");
  rules->registered[*found] = std::move(rule);
}

Rule sharding_rule(const OpDef& op, std::span<const TensorInfo> in, const Attrs& attrs) {
  rules->used.insert(&op);
  const auto found = rules->registered.find(&op);
  if (found != rules->registered.end()) return found->second(in, attrs);
  CS_REQUIRE(op.rule, op.name, ": it has no sharding rule and works on plain tensors alone");
  return op.rule(in, attrs);
}

}  // namespace coshard
