#pragma once
// The planner: which steps lead from one layout to another in the least predicted time. A shortest
// path over the layouts of plan_layouts.h by the prices of pricing.h; among paths of equal time one
// with the fewest collectives. No layout on the way takes more memory than the larger of the two.
// Pure, and therefore the same on every rank.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <coshard/runtime/cost/link.h>
#include "dtensor/redistribute/step.h"

namespace coshard {

// Layouts must be normalized; `width`: bytes per element. Mesh dimensions of one rank take no part.
// `links`: one per mesh dimension; none: time_of's. Error{BadInput}: another number of entries; a
// Partial target, except from the same Partial, from a shard to P(sum), and from R to any but
// P(product).
std::vector<PlanStep> plan_steps(const std::vector<int>& mesh_shape, const Shape& shape, int width,
                                 const Layout& from, const Layout& to,
                                 std::span<const Link> links = {});

// Whether redistribute() supports it. The only way to become Partial is from a shard, to P(sum).
inline bool may_become(const Placement& now, const Placement& wanted) {
  return !wanted.is_partial() || wanted == now || (now.is_sharded() && wanted == Partial());
}

// What a plan costs.
struct PlanCost {
  bool communicates = false;
  double time = 0;  // us
};

// What it costs to bring one tensor from its layout to any of many, as operators compare them: one
// search, which goes on from where it stopped. Exactly the time of plan_steps, to 1e-6 us; where that
// has no step because all that differs is on mesh dimensions of one rank, that of a local step.
class PlanCosts {
 public:
  // As for plan_steps. `links` must outlive it.
  PlanCosts(std::span<const int> mesh_shape, const Shape& shape, int width, const Layout& from,
            std::span<const Link> links);
  PlanCosts(PlanCosts&&) noexcept;
  ~PlanCosts();
  // `time` is infinite if plan_steps refuses it, and may be if it takes longer than `limit`.
  PlanCost to(const Layout& target, double limit);
  // Of the layouts that have shards or R in place of its Partials, to the cheapest.
  PlanCost reduced();

 private:
  class Searches;
  std::unique_ptr<Searches> searches_;  // null: nothing to move
  Layout from_;
};

// "S(0)R -> RR -> RS(1)": the layouts a plan goes through.
std::string trace(const Layout& from, const std::vector<PlanStep>& steps);

}  // namespace coshard
