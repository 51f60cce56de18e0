#pragma once
// How the ranks of a mesh share one dimension of a tensor, in closed form: which positions each has
// is told by digits of the position, where sizes are even, and by a list of pieces otherwise. Pure.
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <coshard/dtensor/layout.h>
#include "dtensor/redistribute/mesh_dims.h"

namespace coshard {

// A mesh's shape. A rank is told by a code in which each of its coordinates has bits of its own,
// the first the highest: codes ascend like ranks, and some are nobody's.
struct MeshGrid {
  explicit MeshGrid(const std::vector<int>& mesh_shape);
  int size_of(MeshDims dims) const;       // ranks in a group over these dimensions
  unsigned bits_of(MeshDims dims) const;  // of a code, where these coordinates are
  int ndim = 0, ranks = 1;
  unsigned codes = 1;
  std::array<int, kMaxMeshDims> size{}, shift{};
};

// Per mesh dimension: 0 not cut, 1 Shard, 1 + split StridedShard. Dimensions of one rank cut
// nothing.
using CutKey = std::array<std::int32_t, kMaxMeshDims>;

// position / weight % radix is the part coordinate / place % radix of the coordinate in `mesh_dim`.
struct CutDigit {
  std::int64_t weight, radix;
  int mesh_dim;
  std::int64_t place;
};

// Positions [begin, end), of the ranks whose coordinates in the dimensions that cut are those of
// the code `owner`.
struct CutPiece {
  std::int64_t begin, end;
  unsigned owner;
};

struct DimCut {
  CutKey key{};
  MeshDims dims = 0;
  bool even = true;  // all ranks have the same number of positions, told by digits
  InlineVector<CutDigit, 2 * kMaxMeshDims> digits;
  double most = 0;  // positions of the rank that has most
  // Filled where they are needed: by owner, then position; by position.
  std::vector<CutPiece> by_owner, by_position;
};

// Of two cuts `from` and `to` of one dimension.
struct CutPair {
  bool known = false;
  // The smallest set of dimensions over which each rank finds what `to` gives it.
  MeshDims needed = 0;
  bool even = true;
  // Even: positions that a rank has in both; 0 where some rank has none.
  double common = 0;
  std::vector<double> by_rank;  // the same of every rank, by code; filled where it is needed
};

// All cuts of one tensor dimension that a search meets, and what pairs of them have in common.
class DimCuts {
 public:
  DimCuts(const MeshGrid& grid, std::int64_t size) : grid_(&grid), size_(size) {}
  int id_of(const CutKey& key);
  const DimCut& operator[](int id) const { return *cuts_[static_cast<std::size_t>(id)]; }
  const CutPair& pair(int from, int to) {
    const CutPair& found = slot(from, to);
    return found.known ? found : compare(from, to);
  }
  // Positions that each rank has in both, by code.
  const std::vector<double>& by_rank(int from, int to);
  // In one group over `dims`, each rank's positions begin where those of the rank before end, or
  // later. `dims` cut it.
  bool ascends(int id, MeshDims dims);
  // The ranks of each group over `dims`, taken together, have in `from` what each of them has in
  // `to`.
  bool gathers(int from, int to, MeshDims dims);

 private:
  const DimCut& with_pieces(int id);
  CutPair& slot(int from, int to);
  const CutPair& compare(int from, int to);
  bool compare_digits(const DimCut& from, const DimCut& to, CutPair& pair) const;
  void compare_pieces(const DimCut& from, const DimCut& to, CutPair& pair) const;

  const MeshGrid* grid_;
  std::int64_t size_;
  std::vector<std::unique_ptr<DimCut>> cuts_;
  std::vector<std::vector<CutPair>> pairs_;
};

}  // namespace coshard
