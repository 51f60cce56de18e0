#include <coshard/dtensor/ops/op.h>

namespace coshard {
namespace {

Placement cut_at(const std::string& axes, char axis, const Placement& cut, Placement otherwise) {
  const auto at = axes.find(axis);
  if (at == axes.npos) return otherwise;
  Placement placement = cut;
  placement.dim = static_cast<std::int16_t>(at);
  return placement;
}

// `unit`: of a StridedShard.
bool may_cut(const Rule& rule, char axis, std::int64_t parts, std::int64_t cut_before,
             std::int64_t unit = 1) {
  if (axis == '.' || rule.whole.find(axis) != rule.whole.npos) return false;
  for (const Rule::Even& even : rule.even)
    if (even.axis == axis && (unit != 1 || !even.allows(parts, cut_before))) return false;
  return true;
}

// Shards every dimension with that axis by `cut`.
Strategy cut_strategy(const Rule& rule, char axis, const Placement& cut) {
  Strategy strategy;
  strategy.axis = axis;
  for (const auto& in : rule.in) strategy.in.push_back(cut_at(in, axis, cut, Replicate()));
  for (const auto& out : rule.out)
    strategy.out.push_back(cut_at(out, axis, cut, Partial(rule.contraction)));
  return strategy;
}

bool fits(const Rule& rule, const Strategy& extra, int n, const Parts& parts,
          std::span<const Placement> now) {
  for (std::size_t i = 0; i < now.size(); ++i)
    if ((extra.axis || rule.in[i] == "*") && !(extra.in[i] == now[i])) return false;
  return !extra.axis || (extra.even_by % n == 0 && parts[extra.axis] == 1);
}

// Whether the strategy is for a "*" input that is sharded.
bool cuts_as_told(const Rule& rule, const Strategy& extra) {
  for (std::size_t i = 0; i < rule.in.size(); ++i)
    if (rule.in[i] == "*" && extra.in[i].is_sharded()) return true;
  return false;
}

// A "*" input keeps its layout.
void leave_alone(const Rule& rule, std::span<const Placement> now, Strategy& strategy) {
  for (std::size_t i = 0; i < now.size(); ++i)
    if (rule.in[i] == "*") strategy.in[i] = now[i];
}

}  // namespace

bool Rule::Even::allows(std::int64_t parts, std::int64_t cut_before) const {
  const std::int64_t all = parts * cut_before;
  if (by % all == 0 && other % all == 0) return true;
  if (other == 0 || cut_before != 1) return false;
  return chunk_of(by, parts, 0).size * other == chunk_of(other, parts, 0).size * by;
}

std::vector<Strategy> strategies_of(const Rule& rule, int n, const Parts& parts,
                                    std::span<const Placement> now) {
  std::vector<Strategy> strategies;
  strategies.push_back({std::vector<Placement>(rule.in.size(), Replicate()),
                        std::vector<Placement>(rule.out.size(), Replicate())});
  std::string seen;
  for (const auto& axes : rule.in) {
    for (char axis : axes) {
      if (axis == '*') continue;
      if (seen.find(axis) != seen.npos) continue;
      seen.push_back(axis);
      if (may_cut(rule, axis, n, parts[axis]))
        strategies.push_back(cut_strategy(rule, axis, Shard(0)));
    }
  }
  for (std::size_t i = 0; rule.strided && i < now.size(); ++i) {
    if (!now[i].is_strided() || rule.in[i] == "*") continue;
    const char axis = rule.in[i][static_cast<std::size_t>(now[i].dim)];
    if (may_cut(rule, axis, n, parts[axis] * now[i].split, now[i].unit))
      strategies.push_back(cut_strategy(rule, axis, now[i]));
  }
  for (Strategy& strategy : strategies) leave_alone(rule, now, strategy);
  for (const Strategy& extra : rule.extra) {
    if (!fits(rule, extra, n, parts, now)) continue;
    if (cuts_as_told(rule, extra)) return {extra};
    strategies.push_back(extra);
  }
  return strategies;
}

Strategy partial_strategy(std::string_view in, std::string_view out, Reduce reduce) {
  Strategy strategy;
  for (char c : in) strategy.in.push_back(c == 'P' ? Partial(reduce) : Replicate());
  for (char c : out) strategy.out.push_back(c == 'P' ? Partial(reduce) : Replicate());
  return strategy;
}

}  // namespace coshard
