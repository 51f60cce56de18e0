// The library's operators, and registered rules that replace theirs.
#include <algorithm>
#include <map>
#include <set>

#include <coshard/dtensor/ops/op.h>
#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/coro/rank_context.h>
#include "dtensor/ops/decision.h"
#include "runtime/comm/collective.h"

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
  std::set<const OpDef*> used;                           // have cached decisions
  std::set<std::pair<const OpDef*, std::string>> noted;  // and mesh, as text
};
const RankLocal<Rules> rules;

// For notes, whose text must be static.
std::string_view text_of(const OpDef& op) {
  static const std::map<const OpDef*, std::string> texts = [] {
    std::map<const OpDef*, std::string> all;
    for (const OpDef* known : all_operators())
      all[known] = str_cat("used for ", known->name, " a registered rule with");
    return all;
  }();
  return texts.at(&op);
}

std::uint64_t hash_of(const OpDef& op, const Rule& rule) {
  std::uint64_t hash = 0;
  const auto add = [&](std::string_view word) {
    for (const char axis : word) hash = mix(hash, static_cast<unsigned char>(axis));
    hash = mix(hash, word.size());
  };
  add(op.name);
  for (const auto* words : {&rule.in, &rule.out})
    for (const std::string& word : *words) add(word);
  for (const Strategy& extra : rule.extra)
    for (const auto* placements : {&extra.in, &extra.out})
      for (const Placement& placement : *placements) add(str_cat(placement));
  return hash;
}

}  // namespace

void register_sharding(std::string_view name, RuleFunction rule) {
  CS_REQUIRE(rule, "register_sharding: ", name, ": the rule is an empty function");
  const auto all = all_operators();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](auto* op) { return op->name == name; });
  CS_REQUIRE(found != all.end(), "register_sharding: there is no operator '", name, "'");
  CS_REQUIRE(!rules->used.contains(*found), "register_sharding: ", name,
             " has already been used on DTensors; register its rule earlier");
  rules->registered[*found] = std::move(rule);
}

bool has_registered_rule(const OpDef& op) { return rules->registered.contains(&op); }

void note_rule(const OpDef& op, const Rule& rule, const DeviceMesh& mesh) {
  if (!has_registered_rule(op) || !mesh.contains_this_rank() || Branch::current().unordered) return;
  std::string where = str_cat(mesh);
  for (const int rank : mesh.ranks()) where += str_cat(' ', rank);
  if (!rules->noted.insert({&op, where}).second) return;
  const std::uint64_t hash = hash_of(op, rule);
  for (int m = 0; m < mesh.ndim(); ++m)
    mesh.note(m, {text_of(op), "inputs and the hash", rule.in.size(), hash});
}

Rule sharding_rule(const OpDef& op, std::span<const TensorInfo> in, const Attrs& attrs) {
  rules->used.insert(&op);
  const auto found = rules->registered.find(&op);
  if (found != rules->registered.end()) return found->second(in, attrs);
  CS_REQUIRE(op.rule, op.name, " has no sharding rule; it supports plain tensors only");
  return op.rule(in, attrs);
}

}  // namespace coshard
