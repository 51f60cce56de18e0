#include <coshard/dtensor/mesh/layout.h>

namespace coshard {

void Layout::refuse_index(int i) const {
  fail(ErrorKind::BadInput, str_cat("layout: dimension ", i, " is out of range for ", *this,
                                    ", which has ", ndim(), "; count from 0"));
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  for (const Placement& placement : layout) out << placement;
  return out;
}

std::string to_string(const Layout& layout) { return str_cat(layout); }

Layout partial_as_replicate(Layout layout) {
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_partial()) layout[m] = Replicate();
  return layout;
}

Layout normalize(Layout layout, const Shape& shape, const char* what) {
  for (int i = 0; i < layout.ndim(); ++i) {
    Placement& p = layout[i];
    if (!p.is_sharded()) continue;
    const int ndim = static_cast<int>(shape.size());
    CS_REQUIRE(p.dim >= -ndim && p.dim < ndim, what, ": ", p, " is out of range for shape ", shape);
    if (p.dim < 0) p.dim = static_cast<std::int16_t>(p.dim + ndim);
  }
  return layout;
}

}  // namespace coshard
