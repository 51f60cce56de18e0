// Decisions of a rank, found by value.
#include "dtensor/ops/decision.h"

#include <unordered_map>

#include "runtime/coro/rank_context.h"

namespace coshard {
namespace {

void mix(std::uint64_t& h, std::uint64_t value) {
  h = (h ^ value) * 0x9E3779B97F4A7C15ULL, h ^= h >> 29;
}

std::uint64_t hash_of(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                      bool in_place) {
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(&op) + in_place;
  for (auto value : attrs.ints) mix(h, static_cast<std::uint64_t>(value));
  for (auto value : attrs.reals) mix(h, std::bit_cast<std::uint64_t>(value));
  for (const Tensor& t : in) {
    if (!t.defined()) {
      mix(h, 7);
    } else if (t.is_distributed()) {
      mix(h, reinterpret_cast<std::uintptr_t>(t.spec().get()));
    } else {
      for (auto size : t.local_shape()) mix(h, static_cast<std::uint64_t>(size));
    }
    if (t.defined()) mix(h, static_cast<std::uint64_t>(t.dtype()));
  }
  return h;
}

bool matches(const Decision& d, const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
             bool in_place) {
  if (d.op != &op || d.inputs.size() != in.size() || !(d.attrs == attrs)) return false;
  if (d.in_place != in_place) return false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const DecisionInput& key = d.inputs[i];
    if (key.defined != in[i].defined()) return false;
    if (!key.defined) continue;
    if (key.dtype != in[i].dtype() || key.spec != in[i].spec()) return false;
    if (!key.spec && !(key.shape == in[i].local_shape())) return false;
  }
  return true;
}

}  // namespace

std::string show_call(const OpDef& op, std::span<const Tensor> in) {
  std::string text(op.name);
  text += ": ";
  for (std::size_t i = 0; i < in.size(); ++i) text += (i ? ", " : "") + describe(in[i]);
  return text;
}

// A cache by value: forgetting it changes nothing but time.
const Decision& decision_for(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                             bool in_place) {
  struct Decisions {
    std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<Decision>>> table;
    std::size_t entries = 0;
  };
  static const RankLocal<Decisions> decisions;
  auto& [table, entries] = *decisions;
  constexpr std::size_t kMostEntries = 16'384;
  auto& bucket = table[hash_of(op, in, attrs, in_place)];
  for (const auto& d : bucket)
    if (matches(*d, op, in, attrs, in_place)) return *d;
  auto made = decide(op, in, attrs, in_place);
  if (++entries > kMostEntries) {
    table.clear();
    entries = 1;
    auto& fresh = table[hash_of(op, in, attrs, in_place)];
    fresh.push_back(std::move(made));
    return *fresh.back();
  }
  bucket.push_back(std::move(made));
  return *bucket.back();
}

}  // namespace coshard
