#pragma once
// How the ranks of a mesh shard one dimension of a tensor, in closed form: if sizes are even, a
// position's digits say which rank has it; otherwise a list of ranges does. Pure.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <coshard/dtensor/mesh/layout.h>
#include "dtensor/redistribute/mesh_dims.h"

namespace coshard {

// A mesh's shape. A rank is encoded as a number in which each coordinate has its own bits, the
// first the highest: codes ascend like ranks, and some codes are unused.
struct MeshGrid {
  explicit MeshGrid(const std::vector<int>& mesh_shape);
  int size_of(MeshDims dims) const;       // ranks in a group over these dimensions
  unsigned bits_of(MeshDims dims) const;  // of a code, where these coordinates are
  int ndim = 0, ranks = 1;
  unsigned codes = 1;
  std::array<int, kMaxMeshDims> size{}, shift{};
};

// Per mesh dimension: 0 not sharded, or sharding_code. Dimensions of one rank shard nothing.
using ShardingKey = std::array<std::int64_t, kMaxMeshDims>;

// position / weight % radix is the part coordinate / place % radix of the coordinate in `mesh_dim`.
struct ShardDigit {
  std::int64_t weight, radix;
  int mesh_dim;
  std::int64_t place;
};

// Positions [begin, end), held by the ranks whose coordinates in the sharding dimensions are those
// of the code `owner`.
struct ShardRange {
  std::int64_t begin, end;
  unsigned owner;
};

struct DimSharding {
  ShardingKey key{};
  MeshDims dims = 0;
  bool even = true;  // all ranks have equally many positions, given by digits
  InlineVector<ShardDigit, 2 * kMaxMeshDims> digits;
  double most = 0;  // positions of the rank that has the most
  // Computed on demand: by owner, then position; by position.
  std::vector<ShardRange> by_owner, by_position;
};

// For two shardings `from` and `to` of one dimension.
struct ShardingPair {
  bool known = false;
  // The smallest set of dimensions over which each rank finds what it has in `to`.
  MeshDims needed = 0;
  bool even = true;
  // Even: positions that a rank has in both; 0 for ranks with none.
  double common = 0;
  std::vector<double> by_rank;  // the same per rank, by code; computed on demand
};

// All shardings of one tensor dimension that a search meets, and what pairs of them have in common.
class DimShardings {
 public:
  DimShardings(const MeshGrid& grid, std::int64_t size) : grid_(&grid), size_(size) {}
  int id_of(const ShardingKey& key);
  const DimSharding& operator[](int id) const { return *shardings_[static_cast<std::size_t>(id)]; }
  const ShardingPair& pair(int from, int to) {
    const ShardingPair& found = slot(from, to);
    return found.known ? found : compare(from, to);
  }
  // Positions that each rank has in both, by code.
  const std::vector<double>& by_rank(int from, int to);
  // In each group over `dims`, each rank's positions begin at or after the end of the previous
  // rank's. `dims` shard the dimension.
  bool ascends(int id, MeshDims dims);
  // The ranks of each group over `dims` together hold, in `from`, what each of them holds in `to`.
  bool gathers(int from, int to, MeshDims dims);

 private:
  const DimSharding& with_ranges(int id);
  ShardingPair& slot(int from, int to) {
    const auto column = static_cast<std::size_t>(from), line = static_cast<std::size_t>(to);
    if (pairs_.size() <= line) [[unlikely]]
      pairs_.resize(shardings_.size());
    if (pairs_[line].size() <= column) [[unlikely]]
      pairs_[line].resize(shardings_.size());
    return pairs_[line][column];
  }
  const ShardingPair& compare(int from, int to);
  bool compare_digits(const DimSharding& from, const DimSharding& to, ShardingPair& pair) const;
  void compare_ranges(const DimSharding& from, const DimSharding& to, ShardingPair& pair) const;

  const MeshGrid* grid_;
  std::int64_t size_;
  std::vector<std::unique_ptr<DimSharding>> shardings_;
  std::vector<std::vector<ShardingPair>> pairs_;  // [to][from], where any of a line was compared
};

}  // namespace coshard
