#include <coshard/dtensor/layout.h>

namespace coshard {

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  for (const Placement& placement : layout) out << placement;
  return out;
}

std::string to_string(const Layout& layout) { return cat(layout); }

Layout partial_as_replicate(Layout layout) {
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_partial()) layout[m] = Replicate();
  return layout;
}

Layout normalize(Layout layout, const Shape& shape, const char* what) {
  for (int i = 0; i < layout.ndim(); ++i) {
    Placement& p = layout[i];
    if (!p.cuts()) continue;
    const int ndim = static_cast<int>(shape.size());
    CS_REQUIRE(p.dim >= -ndim && p.dim < ndim, what, ": ", p, " of a tensor of shape ", shape);
    if (p.dim < 0) p.dim = static_cast<std::int16_t>(p.dim + ndim);
  }
  return layout;
}

}  // namespace coshard
