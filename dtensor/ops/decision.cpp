// Decisions of a rank, found by value.
#include "dtensor/ops/decision.h"

#include "runtime/coro/rank_context.h"

namespace coshard {
namespace {

std::uint64_t hash_of(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                      bool in_place) {
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(&op) + in_place;
  for (auto value : attrs.ints) mix_in(h, static_cast<std::uint64_t>(value));
  for (auto value : attrs.reals) mix_in(h, std::bit_cast<std::uint64_t>(value));
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
  std::string text(op.name);
  text += ": ";
  for (std::size_t i = 0; i < in.size(); ++i) text += (i ? ", " : "") + describe(in[i]);
  return text;
}

const Decision& decision_for(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                             bool in_place, const CachesHeld&) {
  static const RankLocal<BoundedCache<Decision, DecisionKind>> decisions;
  const std::uint64_t hash = hash_of(op, in, attrs, in_place);
  const auto same = [&](const Decision& d) { return matches(d, op, in, attrs, in_place); };
  auto& known = *decisions;
  if (const auto* found = known.find(hash, same)) return **found;
  return *known.add(hash, decide(op, in, attrs, in_place));
}

}  // namespace coshard
