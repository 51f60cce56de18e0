#pragma once
// What a redistribute would take, told without planning it: what operators compare layouts by. The
// planner's prices, in closed form. Pure, and therefore the same on every rank.
#include <span>

#include <coshard/dtensor/layout.h>
#include <coshard/dtensor/redistribute/cost.h>

namespace coshard {

// A mesh as a price list: the sizes of its dimensions, and their links (none: those of time_of).
struct MeshCosts {
  std::span<const int> sizes;
  std::span<const LinkCost> links;
};

// Whether redistribute() offers it. The only way to a Partial is from a shard, to P(sum).
inline bool may_become(const Placement& now, const Placement& wanted) {
  return !wanted.is_partial() || wanted == now || (now.cuts() && wanted == Partial());
}

// What plan_steps would take for a tensor, without planning: in closed form, from the part of the
// rank that holds most, whatever the number of ranks. Not counted: packing. Infinite where there is
// no such plan, and for a shard that becomes Partial, which is no operator's way.
struct Transition {
  bool communicates = false;
  double time = 0;
};
Transition time_to_redistribute(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                                const Layout& from, const Layout& to);
// The least that reducing all its Partials takes later: the bytes of a reduce_scatter. Its latency
// is not counted, for it may be shared: Partials that meet are added up first.
double time_to_reduce(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                      const Layout& layout);

}  // namespace coshard
