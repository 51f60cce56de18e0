#pragma once
// The layouts that a plan may pass through. For the planner's oracle: it shares no code with the
// planner.
#include <array>
#include <cstdint>
#include <vector>

#include <coshard/dtensor/mesh/layout.h>

namespace coshard::oracle {

// Orders layouts, for maps.
using LayoutKey = std::array<std::uint32_t, kMaxMeshDims>;
LayoutKey key_of(const Layout& layout);

// Whatever they hold. No mesh dimension may be of one rank.
std::vector<Layout> nodes_between(const std::vector<int>& mesh, int tensor_dims, const Layout& from,
                                  const Layout& to);

}  // namespace coshard::oracle
