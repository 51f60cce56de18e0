#include "dtensor/redistribute/holdings.h"

#include <algorithm>

namespace coshard {
namespace {

Ranges joined(Ranges ranges) {
  Ranges out;
  for (const Range& r : ranges) {
    if (r.begin == r.end) continue;
    if (!out.empty() && out.back().end == r.begin) {
      out.back().end = r.end;
    } else {
      out.push_back(r);
    }
  }
  return out;
}

}  // namespace

Ranges intersect(const Ranges& a, const Ranges& b) {
  Ranges out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Range common{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (common.begin < common.end) out.push_back(common);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return out;
}

std::int64_t position_in(const Ranges& ranges, std::int64_t index) {
  std::int64_t before = 0;
  for (const Range& r : ranges) {
    if (index < r.end) return before + index - r.begin;
    before += r.end - r.begin;
  }
  return before;
}

MeshDims cutting(const Layout& layout, int dim) {
  MeshDims dims = 0;
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].cuts(dim)) dims |= 1U << m;
  return dims;
}

Holdings::Holdings(std::vector<int> mesh_shape, const Shape& shape)
    : mesh_shape_(std::move(mesh_shape)), strides_(mesh_shape_.size(), 1), shape_(shape) {
  for (std::size_t m = mesh_shape_.size(); m-- > 0;) {
    strides_[m] = ranks_;
    ranks_ *= mesh_shape_[m];
  }
}

const std::vector<Ranges>& Holdings::along(const Layout& layout, int dim) {
  std::vector<int> key{dim};
  for (const Placement& p : layout)
    key.push_back(!p.cuts(dim) ? 0 : p.is_shard() ? 1 : 1 + p.split);
  const auto [at, fresh] = cuts_.try_emplace(std::move(key));
  if (!fresh) return at->second;
  std::vector<int> coordinate(mesh_shape_.size());
  for (int rank = 0; rank < ranks_; ++rank) {
    for (std::size_t m = 0; m < coordinate.size(); ++m)
      coordinate[m] = rank / strides_[m] % mesh_shape_[m];
    at->second.push_back(joined(
        ranges_of(layout, mesh_shape_, coordinate, dim, shape_[static_cast<std::size_t>(dim)])));
  }
  return at->second;
}

std::int64_t Holdings::held(const Layout& layout, int rank) {
  std::int64_t count = 1;
  for (int d = 0; d < ndim(); ++d)
    count *= count_of(along(layout, d)[static_cast<std::size_t>(rank)]);
  return count;
}

std::vector<int> Holdings::group(int rank, MeshDims dims) const {
  int base = rank;
  for (std::size_t m = 0; m < mesh_shape_.size(); ++m)
    if (has(dims, static_cast<int>(m))) base -= rank / strides_[m] % mesh_shape_[m] * strides_[m];
  std::vector<int> ranks{base};
  for (std::size_t m = 0; m < mesh_shape_.size(); ++m) {
    if (!has(dims, static_cast<int>(m))) continue;
    std::vector<int> longer;
    for (const int r : ranks)
      for (int i = 0; i < mesh_shape_[m]; ++i) longer.push_back(r + i * strides_[m]);
    ranks = std::move(longer);
  }
  return ranks;
}

int Holdings::size(MeshDims dims) const {
  int size = 1;
  for (std::size_t m = 0; m < mesh_shape_.size(); ++m)
    if (has(dims, static_cast<int>(m))) size *= mesh_shape_[m];
  return size;
}

}  // namespace coshard
