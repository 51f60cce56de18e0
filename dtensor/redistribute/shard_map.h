#pragma once
// Which positions of a tensor the ranks of a mesh hold under a layout. Pure functions of the mesh's
// shape, the tensor's shape and layouts; ranks are numbered row-major over the mesh.
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include <coshard/dtensor/mesh/spec.h>
#include "dtensor/redistribute/mesh_dims.h"

namespace coshard {

using Ranges = std::vector<Range>;  // ascending, disjoint and not adjacent

Ranges intersect(const Ranges& a, const Ranges& b);
std::int64_t common(const Ranges& a, const Ranges& b);  // positions in both
// The ordinal of `index`, which is in `ranges`, among their positions.
std::int64_t position_in(const Ranges& ranges, std::int64_t index);

class ShardMap {
 public:
  ShardMap(std::vector<int> mesh_shape, const Shape& shape);

  const std::vector<int>& mesh_shape() const { return mesh_shape_; }
  const Shape& shape() const { return shape_; }
  int ndim() const { return static_cast<int>(shape_.size()); }
  int ranks() const { return ranks_; }

  // What every rank holds along tensor dimension `dim`. Two layouts that shard it the same way
  // share one object.
  const std::vector<Ranges>& along(const Layout& layout, int dim);
  // Number of elements that every rank holds in both layouts.
  std::vector<std::int64_t> held(const Layout& a, const Layout& b);
  std::vector<std::int64_t> held(const Layout& layout) { return held(layout, layout); }

  // The ranks that differ from `rank` only in these mesh dimensions, row-major, itself included.
  const std::vector<int>& group(int rank, MeshDims dims);
  int size(MeshDims dims) const;  // of such a group

 private:
  std::vector<int> mesh_shape_, strides_;
  Shape shape_;
  int ranks_ = 1;
  // The tensor dimension, and how each mesh dimension shards it: 0 not, or sharding_code.
  using Cuts = std::array<std::int64_t, kMaxMeshDims + 1>;
  struct Hash {
    std::size_t operator()(const Cuts& cuts) const {
      std::size_t h = 0;
      for (const std::int64_t cut : cuts) h = h * 1099511628211ULL + static_cast<std::size_t>(cut);
      return h;
    }
  };
  std::unordered_map<Cuts, std::vector<Ranges>, Hash> cuts_;
  struct Groups {
    std::vector<std::vector<int>> members;
    std::vector<int> of;  // by rank: which of them
  };
  std::map<MeshDims, Groups> groups_;
};

// The mesh dimensions that shard tensor dimension `dim`.
MeshDims cutting(const Layout& layout, int dim);

}  // namespace coshard
