#include "dtensor/mesh/partial.h"

namespace coshard {

std::optional<double> partial_in_place_of_value(const DeviceMesh& mesh, const Layout& layout) {
  std::optional<double> held;
  for (int m = 0; m < layout.ndim() && mesh.contains_this_rank(); ++m) {
    if (!layout[m].is_partial() || mesh.local_rank(m) == 0) continue;
    if (layout[m].reduce == Reduce::Sum) held = 0;
    if (layout[m].reduce == Reduce::Product) held = 1;
  }
  return held;
}

bool gradient_needs_partial(const Layout& layout) {
  for (const Placement& p : layout)
    if (p.is_partial() && p.reduce != Reduce::Sum && p.reduce != Reduce::Avg) return true;
  return false;
}

bool same_shards(const Layout& a, const Layout& b) {
  if (a.ndim() != b.ndim()) return false;
  for (int m = 0; m < a.ndim(); ++m) {
    const bool both_whole =
        (a[m].is_replicate() || a[m].is_partial()) && (b[m].is_replicate() || b[m].is_partial());
    if (!both_whole && !(a[m] == b[m])) return false;
  }
  return true;
}

}  // namespace coshard
