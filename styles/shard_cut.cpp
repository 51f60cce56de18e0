#include "styles/shard_cut.h"

#include <utility>

namespace coshard {
namespace {

// A parameter on the mesh of its own dimensions and of those along which it is sharded.
struct Whole {
  std::string_view name;
  const Tensor& x;
  DeviceMesh mesh;  // all these dimensions
  int cutting = 0;  // the one that cuts now
  Layout layout;    // as x is before
};

Whole on_joint_mesh(const std::string& name, const Tensor& x, const DeviceMesh& mesh) {
  Whole whole{name, x, mesh, mesh.ndim() - 1, Layout::filled(mesh.ndim(), Replicate())};
  if (!x.is_distributed()) return whole;
  whole.mesh = x.mesh().joined(mesh);
  if (!whole.mesh.defined() || x.layout().has_partial())
    fail(ErrorKind::Unsupported,
         str_cat("fully_shard: parameter '", name, "' is ", x, ", and cannot be sharded along ",
                 mesh, "; both must be slices, of other dimensions, of one mesh"));
  whole.cutting = whole.mesh.dim(mesh.names().back());
  whole.layout = Layout::filled(whole.mesh.ndim(), Replicate());
  for (int m = 0; m < x.mesh().ndim(); ++m)
    whole.layout[whole.mesh.dim(x.mesh().names()[static_cast<std::size_t>(m)])] = x.layout()[m];
  return whole;
}

// Later mesh dimensions that shard `dim` have cut it first, into this many chunks.
std::vector<Placement> candidates(const Whole& whole, int dim) {
  std::int64_t ranks = 1, parts = 1;
  for (int m = whole.cutting + 1; m < whole.layout.ndim(); ++m)
    if (whole.layout[m].is_sharded(dim)) {
      ranks *= whole.mesh.size(m);
      parts *= whole.layout[m].split;
    }
  if (ranks == 1) return {Shard(dim)};
  std::vector<Placement> found{StridedShard(dim, static_cast<int>(ranks))};
  if (parts > 1) found.push_back(StridedShard(dim, static_cast<int>(ranks * parts)));
  return found;
}

// With `placement` along the cutting dimension; false: some rank would have to hold what it does
// not have of the parameter.
bool cut_by(const Whole& whole, const Placement& placement, ShardCut& cut) {
  Layout layout = whole.layout;
  layout[whole.cutting] = placement;
  cut.dim = placement.dim;
  ShardMap map(whole.mesh.shape(), whole.x.shape());
  const std::vector<Ranges>& before = map.along(whole.layout, cut.dim);
  const std::vector<Ranges>& after = map.along(layout, cut.dim);
  for (std::size_t rank = 0; rank < after.size(); ++rank)
    if (common(after[rank], before[rank]) != count_of(after[rank])) return false;
  int own = 0;  // row-major
  for (int m = 0; m < whole.mesh.ndim(); ++m)
    own = own * whole.mesh.size(m) + whole.mesh.local_rank(m);
  const Ranges& here = before[static_cast<std::size_t>(own)];
  cut.kept.clear();
  for (const int rank : map.group(own, 1U << whole.cutting)) {
    Ranges& kept = cut.kept.emplace_back();
    for (const Range& range : intersect(after[static_cast<std::size_t>(rank)], here)) {
      const std::int64_t begin = position_in(here, range.begin);
      kept.push_back({begin, begin + range.end - range.begin});
    }
  }
  cut.spec = make_spec(whole.mesh, layout, whole.x.shape());
  return true;
}

}  // namespace

ShardCut shard_cut(const std::string& name, const Tensor& x, const DeviceMesh& mesh,
                   const std::optional<Placement>& wanted) {
  const int ndim = x.ndim();
  CS_REQUIRE(!wanted || (wanted->is_shard() && wanted->dim >= -ndim && wanted->dim < ndim),
             "fully_shard: shard_placement_fn gave ", *wanted, " for parameter '", name, "' (", x,
             "); it must be Shard of one of its dimensions");
  const Whole whole = on_joint_mesh(name, x, mesh);
  const int dim = !wanted ? 0 : wanted->dim < 0 ? wanted->dim + ndim : wanted->dim;
  ShardCut cut;
  for (const Placement& placement : candidates(whole, dim))
    if (cut_by(whole, placement, cut)) return cut;
  if (wanted)
    fail(ErrorKind::Unsupported,
         str_cat("fully_shard: parameter '", name, "' is ", x, ", and no layout on ", whole.mesh,
                 " says what ranks hold of its ", x.size(dim), " positions of dimension ", dim,
                 "; let shard_placement_fn give another dimension, or declare '",
                 mesh.names().back(), "' after the others"));
  for (int other = 1; other < ndim; ++other)
    if (cutting(whole.layout, other) == 0 && x.size(other) >= mesh.size(mesh.ndim() - 1) &&
        cut_by(whole, Shard(other), cut))
      return cut;
  // All on the first rank: chunks of one position each.
  cut_by(whole, StridedShard(dim, static_cast<int>(x.size(dim))), cut);
  return cut;
}

}  // namespace coshard
