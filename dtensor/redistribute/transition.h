#pragma once
// Predicts what a redistribute would cost without planning it; operators compare layouts by this.
// The planner's prices, in closed form. Pure, and therefore the same on every rank.
#include <span>

#include <coshard/dtensor/layout.h>
#include <coshard/dtensor/redistribute/cost.h>

namespace coshard {

// A mesh, for pricing: the sizes of its dimensions and their links (none: those of time_of).
struct MeshCosts {
  std::span<const int> sizes;
  std::span<const LinkCost> links;
};

// Whether redistribute() supports it. The only way to become Partial is from a shard, to P(sum).
inline bool may_become(const Placement& now, const Placement& wanted) {
  return !wanted.is_partial() || wanted == now || (now.is_sharded() && wanted == Partial());
}

// What plan_steps would cost, without planning: in closed form, for the rank that holds the most,
// whatever the number of ranks. Ignores packing. Infinite if there is no such plan, and for a shard
// that becomes Partial, which operators never do.
struct Transition {
  bool communicates = false;
  double time = 0;
};
Transition time_to_redistribute(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                                const Layout& from, const Layout& to);
// A lower bound for reducing all its Partials later: the bytes of a reduce_scatter. Its latency is
// not counted, since it may be shared: Partials that are added are reduced together.
double time_to_reduce(const MeshCosts& mesh, const Shape& shape, std::int64_t width,
                      const Layout& layout);

}  // namespace coshard
