#pragma once
// Layouts for tests that go through all of them.
#include <vector>

#include <coshard/dtensor/mesh/layout.h>

namespace coshard::testing {

inline std::vector<Layout> layouts_of(int mesh_dims, const std::vector<Placement>& placements) {
  std::vector<Layout> layouts(1);
  for (int m = 0; m < mesh_dims; ++m) {
    std::vector<Layout> longer;
    for (const Layout& layout : layouts)
      for (const Placement& p : placements) {
        longer.push_back(layout);
        longer.back().push_back(p);
      }
    layouts = std::move(longer);
  }
  return layouts;
}

// May `from` be redistributed to `to`?
inline bool allowed(const Layout& from, const Layout& to) {
  for (int m = 0; m < from.ndim(); ++m)
    if (to[m].is_partial() && !(to[m] == from[m]) && !(from[m].is_sharded() && to[m] == Partial()))
      return false;
  return true;
}

}  // namespace coshard::testing
