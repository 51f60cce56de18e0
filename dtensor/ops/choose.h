#pragma once
// Chooses the layouts an operator runs on: the best combination of its rule's strategies, one per
// mesh dimension. Pure, and therefore the same on every rank.
#include <optional>

#include <coshard/dtensor/ops/op.h>
#include "dtensor/redistribute/planner.h"

namespace coshard {

// A mesh, for pricing: the sizes of its dimensions and their links (none: those of time_of).
struct MeshCosts {
  std::span<const int> sizes;
  std::span<const Link> links;
};

struct Choice {
  std::vector<Layout> in, out;
};

// Preferred, in this order:
//   no data movement, because layouts are the user's plan; a resulting Partial is left for later
//   the least time that the plans take which redistribute the inputs, and then reduce Partial outputs
//   the fewest inputs that change, then the rule's order
// A strategy that leaves ranks without elements is excluded unless an input already has that
// layout; if all inputs are replicas, they stay replicas. `now`: the inputs' layouts; any for an
// undefined input. `keep`: if some strategy keeps the first input's placement and gives it to the
// first output, choose only among those. Mesh dimensions are decided together, by branch and bound;
// all targets of an input are priced by one search. nullopt: no strategy fits.
std::optional<Choice> choose_layouts(const Rule& rule, std::span<const TensorInfo> in,
                                     std::span<const Layout> now, std::span<const TensorInfo> out,
                                     const MeshCosts& mesh, bool keep);

}  // namespace coshard
