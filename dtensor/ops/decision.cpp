// A rank's cache of decisions, looked up by value.
#include "dtensor/ops/decision.h"

#include <algorithm>
#include <cmath>

#include <coshard/runtime/coro/rank_context.h>
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// The kinds of numbers that rules may distinguish (OpDef::reals_by_kind).
int kind_of(double x) {
  if (!std::isfinite(x)) return x != x ? 5 : x < 0 ? 6 : 7;
  return x == 0 ? 0 : x == 1 ? 1 : x < 0 ? 2 : 3;
}

bool same_attrs(const Attrs& a, const Attrs& b, bool by_kind) {
  if (!by_kind) return a == b;
  const auto same = [](double x, double y) { return kind_of(x) == kind_of(y); };
  return std::ranges::equal(a.ints(), b.ints()) && std::ranges::equal(a.reals(), b.reals(), same);
}

std::uint64_t hash_of(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                      bool in_place) {
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(&op) + in_place;
  for (auto value : attrs.ints()) mix_in(h, static_cast<std::uint64_t>(value));
  for (auto value : attrs.reals())
    mix_in(h, op.reals_by_kind ? kind_of(value) : std::bit_cast<std::uint64_t>(value));
  for (const Tensor& t : in) {
    if (!t.defined()) {
      mix_in(h, 7);
    } else if (t.is_distributed()) {
      mix_in(h, reinterpret_cast<std::uintptr_t>(t.spec().get()));
    } else {
      for (auto size : t.local_shape()) mix_in(h, static_cast<std::uint64_t>(size));
    }
    if (t.defined()) mix_in(h, static_cast<std::uint64_t>(t.dtype()));
  }
  return h;
}

bool matches(const Decision& d, const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
             bool in_place) {
  if (d.op != &op || d.inputs.size() != in.size() || !same_attrs(d.attrs, attrs, d.by_kind))
    return false;
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

bool plain_beside_dtensors(std::span<const Tensor> in) {
  bool plain = false, distributed = false;
  for (const Tensor& t : in)
    if (t.defined()) (t.is_distributed() ? distributed : plain) = true;
  return plain && distributed;
}

struct DecisionKind {
  static constexpr std::string_view kName = "decisions";
  static constexpr bool kKeepsUsed = false;
  static std::size_t bytes_of(const Decision& d) {
    return d.inputs.size() * (sizeof(DecisionInput) + sizeof(TensorInfo) + sizeof(Layout) + 1);
  }
  static bool lies_on(const Decision& d, const void* mesh) {
    for (const DecisionInput& input : d.inputs)
      if (input.spec && input.spec->mesh.id() == mesh) return true;
    return false;
  }
};

}  // namespace

std::string show_call(const OpDef& op, std::span<const Tensor> in) {
  std::string text(called_or(op.name));
  text += ": ";
  for (std::size_t i = 0; i < in.size(); ++i) text += (i ? ", " : "") + describe(in[i]);
  return text;
}

const Decision* decision_for(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                             bool in_place, const CachesHeld&) {
  static const RankLocal<BoundedCache<Decision, DecisionKind>> decisions;
  const std::uint64_t hash = hash_of(op, in, attrs, in_place);
  const auto same = [&](const Decision& d) { return matches(d, op, in, attrs, in_place); };
  auto& known = *decisions;
  if (const auto* found = known.find(hash, same)) return found->get();
  if (plain_beside_dtensors(in)) return nullptr;
  return known.add(hash, decide(op, in, attrs, in_place)).get();
}

}  // namespace coshard
