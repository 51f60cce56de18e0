#pragma once
// One placement per mesh dimension, outermost first. A value with inline storage.
#include <ostream>
#include <string>

#include <coshard/dtensor/mesh/inline_vector.h>
#include <coshard/dtensor/mesh/placement.h>
#include <coshard/dtensor/mesh/shape.h>

#pragma GCC visibility push(default)
namespace coshard {

constexpr int kMaxMeshDims = 6;

class Layout {
 public:
  Layout() = default;
  // Layout(Shard(0), Replicate())
  template <class... Rest>
  Layout(Placement first, Rest... rest) {  // NOLINT: a single placement is a layout of a 1-D mesh
    placements_.push_back(first);
    (placements_.push_back(rest), ...);
  }
  static Layout filled(int ndim, Placement placement) {
    Layout layout;
    for (int i = 0; i < ndim; ++i) layout.placements_.push_back(placement);
    return layout;
  }

  int ndim() const { return static_cast<int>(placements_.size()); }
  // Error{BadInput}: no such mesh dimension.
  Placement& operator[](int i) { return placements_[checked(i)]; }
  const Placement& operator[](int i) const { return placements_[checked(i)]; }
  const Placement* begin() const { return placements_.begin(); }
  const Placement* end() const { return placements_.end(); }
  void push_back(Placement placement) { placements_.push_back(placement); }
  bool has_partial() const {
    for (const Placement& p : placements_)
      if (p.is_partial()) return true;
    return false;
  }
  bool is_replicate() const {
    for (const Placement& p : placements_)
      if (!p.is_replicate()) return false;
    return true;
  }
  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  [[noreturn]] void refuse_index(int i) const;  // out of line, to keep indexing small
  std::size_t checked(int i) const {
    if (i < 0 || i >= ndim()) [[unlikely]]
      refuse_index(i);
    return static_cast<std::size_t>(i);
  }

  InlineVector<Placement, kMaxMeshDims> placements_;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout);  // S(0)R
std::string to_string(const Layout& layout);
// The layout of the gradient of a value in `layout`: where the value is Partial, every rank has the
// whole gradient (as in PyTorch's DTensor).
Layout partial_as_replicate(Layout layout);
// Makes negative dims non-negative, for a tensor of `shape`. Error{BadInput} for a dim out of
// range.
Layout normalize(Layout layout, const Shape& shape, const char* what);

}  // namespace coshard
#pragma GCC visibility pop
