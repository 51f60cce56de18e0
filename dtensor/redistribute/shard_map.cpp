#include "dtensor/redistribute/shard_map.h"

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

std::int64_t common(const Ranges& a, const Ranges& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t begin = std::max(a[i].begin, b[j].begin);
    count += std::max<std::int64_t>(0, std::min(a[i].end, b[j].end) - begin);
    a[i].end < b[j].end ? ++i : ++j;
  }
  return count;
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
    if (layout[m].is_sharded(dim)) dims |= 1U << m;
  return dims;
}

ShardMap::ShardMap(std::vector<int> mesh_shape, const Shape& shape)
    : mesh_shape_(std::move(mesh_shape)), strides_(mesh_shape_.size(), 1), shape_(shape) {
  for (std::size_t m = mesh_shape_.size(); m-- > 0;) {
    strides_[m] = ranks_;
    ranks_ *= mesh_shape_[m];
  }
}

const std::vector<Ranges>& ShardMap::along(const Layout& layout, int dim) {
  Cuts key{dim};
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_sharded(dim)) key[static_cast<std::size_t>(m) + 1] = sharding_code(layout[m]);
  const auto [at, fresh] = cuts_.try_emplace(key);
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

std::vector<std::int64_t> ShardMap::held(const Layout& a, const Layout& b) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks_), 1);
  for (int d = 0; d < ndim(); ++d) {
    const auto& one = along(a, d);
    const auto& other = along(b, d);
    for (std::size_t rank = 0; rank < counts.size(); ++rank)
      counts[rank] *= common(one[rank], other[rank]);
  }
  return counts;
}

const std::vector<int>& ShardMap::group(int rank, MeshDims dims) {
  const auto [at, fresh] = groups_.try_emplace(dims);
  Groups& groups = at->second;
  if (fresh) {
    groups.of.resize(static_cast<std::size_t>(ranks_));
    for (int other = 0; other < ranks_; ++other) {
      int first = other;
      for (std::size_t m = 0; m < mesh_shape_.size(); ++m)
        if (has(dims, static_cast<int>(m)))
          first -= other / strides_[m] % mesh_shape_[m] * strides_[m];
      if (first == other) {
        groups.of[static_cast<std::size_t>(first)] = static_cast<int>(groups.members.size());
        groups.members.emplace_back();
      }
      const int group = groups.of[static_cast<std::size_t>(first)];
      groups.of[static_cast<std::size_t>(other)] = group;
      groups.members[static_cast<std::size_t>(group)].push_back(other);
    }
  }
  return groups.members[static_cast<std::size_t>(groups.of[static_cast<std::size_t>(rank)])];
}

int ShardMap::size(MeshDims dims) const {
  int size = 1;
  for (std::size_t m = 0; m < mesh_shape_.size(); ++m)
    if (has(dims, static_cast<int>(m))) size *= mesh_shape_[m];
  return size;
}

}  // namespace coshard
