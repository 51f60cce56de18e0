#include "tests/dtensor/redistribute/plan_nodes.h"

#include <algorithm>
#include <set>

namespace coshard::oracle {
namespace {

// Places one mesh dimension after another, from the last to the first, in all ways.
class AllNodes {
 public:
  AllNodes(const std::vector<int>& mesh, int tensor_dims, const Layout& from, const Layout& to)
      : mesh_(mesh),
        from_(from),
        to_(to),
        layout_(from),
        nesting_(static_cast<std::size_t>(tensor_dims)) {
    for (const Placement& p : from) sums_ |= p == Partial(Reduce::Sum) || p == Partial(Reduce::Avg);
    fill(static_cast<int>(mesh.size()) - 1);
  }
  std::vector<Layout> take() { return std::move(nodes_); }

 private:
  void fill(int m) {
    if (m < 0) {
      if (seen_.insert(key_of(layout_)).second) nodes_.push_back(layout_);
      return;
    }
    place(m, Replicate());
    for (const Placement& own : {from_[m], to_[m]})
      if (own.is_partial()) place(m, own);
    if (sums_) place(m, Partial());
    for (int d = 0; d < static_cast<int>(nesting_.size()); ++d) shard(m, d);
  }

  void place(int m, Placement placement) {
    layout_[m] = placement;
    fill(m - 1);
  }

  // At each depth of the nesting: inside no, one, ... all of the later mesh dimensions.
  void shard(int m, int d) {
    std::vector<int>& nesting = nesting_[static_cast<std::size_t>(d)];
    int split = 1;
    for (std::size_t depth = 0; depth <= nesting.size(); ++depth) {
      if (depth > 0) split *= nesting[depth - 1];
      nesting.insert(nesting.begin() + static_cast<std::ptrdiff_t>(depth),
                     mesh_[static_cast<std::size_t>(m)]);
      place(m, split == 1 ? Shard(d) : StridedShard(d, split));
      for (const Placement& own : {from_[m], to_[m]})
        if (own.is_strided() && own.is_sharded(d)) place(m, own);
      nesting.erase(nesting.begin() + static_cast<std::ptrdiff_t>(depth));
    }
  }

  const std::vector<int>& mesh_;
  const Layout &from_, &to_;
  bool sums_ = false;
  Layout layout_;
  // By tensor dimension: the sizes of the mesh dimensions that shard it so far, outermost first.
  std::vector<std::vector<int>> nesting_;
  std::set<LayoutKey> seen_;
  std::vector<Layout> nodes_;
};

}  // namespace

LayoutKey key_of(const Layout& layout) {
  LayoutKey key{};
  for (int m = 0; m < layout.ndim(); ++m) {
    const Placement& p = layout[m];
    key[static_cast<std::size_t>(m)] =
        1 + static_cast<std::uint32_t>(p.kind) + (static_cast<std::uint32_t>(p.reduce) << 3) +
        (static_cast<std::uint32_t>(p.dim) << 6) + (static_cast<std::uint32_t>(p.split) << 10) +
        (static_cast<std::uint32_t>(p.unit) << 20);
  }
  return key;
}

std::vector<Layout> nodes_between(const std::vector<int>& mesh, int tensor_dims, const Layout& from,
                                  const Layout& to) {
  return AllNodes(mesh, tensor_dims, from, to).take();
}

}  // namespace coshard::oracle
