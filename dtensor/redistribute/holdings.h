#pragma once
// Which positions of a tensor the ranks of a mesh hold under a layout. Pure: functions of the
// mesh's shape, the tensor's shape and layouts; ranks are counted row-major over the mesh. Mesh
// dimensions come in sets, as bits: bit m is mesh dimension m.
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "dtensor/spec.h"

namespace coshard {

using MeshDims = unsigned;
constexpr bool has(MeshDims dims, int m) { return (dims >> m & 1U) != 0; }

using Ranges = std::vector<Range>;  // ascending, neither overlapping nor touching

Ranges intersect(const Ranges& a, const Ranges& b);
// The position of `index`, which lies in `ranges`, among the positions they list.
std::int64_t position_in(const Ranges& ranges, std::int64_t index);

class Holdings {
 public:
  Holdings(std::vector<int> mesh_shape, const Shape& shape);

  const std::vector<int>& mesh_shape() const { return mesh_shape_; }
  const Shape& shape() const { return shape_; }
  int ndim() const { return static_cast<int>(shape_.size()); }
  int ranks() const { return ranks_; }

  // What every rank holds along tensor dimension `dim`. Two layouts that cut it in the same way
  // give the same object.
  const std::vector<Ranges>& along(const Layout& layout, int dim);
  std::int64_t held(const Layout& layout, int rank);  // elements

  // The ranks that differ from `rank` in these mesh dimensions only, row-major, itself included.
  std::vector<int> group(int rank, MeshDims dims) const;
  int size(MeshDims dims) const;  // of such a group

 private:
  std::vector<int> mesh_shape_, strides_;
  Shape shape_;
  int ranks_ = 1;
  std::map<std::vector<int>, std::vector<Ranges>> cuts_;
};

// The mesh dimensions that cut tensor dimension `dim`.
MeshDims cutting(const Layout& layout, int dim);

}  // namespace coshard
