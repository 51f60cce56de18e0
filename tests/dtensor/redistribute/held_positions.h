#pragma once
// What the ranks of a mesh hold of one tensor dimension, as explicit sets of positions. For the
// planner's oracle: it shares no code with the planner.
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "dtensor/redistribute/mesh_dims.h"

namespace coshard::oracle {

inline std::size_t index(int i) { return static_cast<std::size_t>(i); }

// The shards of one tensor dimension by mesh dimension: a split of 0, not sharded over it; 1, Shard;
// k, StridedShard(d, k, unit).
struct Split {
  int split = 0, unit = 1;
  auto operator<=>(const Split&) const = default;
};
using Splits = std::vector<Split>;

// The ranks of a mesh, row-major.
class Ranks {
 public:
  explicit Ranks(std::vector<int> mesh);
  const std::vector<int>& mesh() const { return mesh_; }
  int dims() const { return static_cast<int>(mesh_.size()); }
  int count() const { return count_; }
  MeshDims all() const { return (1U << mesh_.size()) - 1; }
  int coordinate(int rank, int m) const;
  // How many ranks differ only in the coordinates `dims`, and the first of those around `rank`.
  int group_size(MeshDims dims) const;
  int first_of_group(int rank, MeshDims dims) const { return first_[dims][index(rank)]; }

 private:
  std::vector<int> mesh_;
  int count_ = 1;
  std::vector<std::vector<int>> first_;  // [dims][rank]
};

// A holding: a set of positions for each rank. Those with the same sets have the same id.
class HeldPositions {
 public:
  HeldPositions(const Ranks& ranks, std::int64_t size);

  int of(const Splits& splits);
  // Each rank holds what the ranks of its group over `dims` hold together.
  int joined(int id, MeshDims dims);
  // In each group over `dims`, each rank's positions begin at or after the previous rank's end.
  bool in_rank_order(int id, MeshDims dims);
  // The fewest mesh dimensions over which every rank finds what it wants.
  MeshDims needed(int held, int wanted);
  // By rank: how many positions it holds; how many of those that it wants.
  const std::vector<double>& counts(int id) const { return counts_[index(id)]; }
  const std::vector<double>& kept(int held, int wanted);

 private:
  // One bit per position, rank after rank.
  using Sets = std::vector<std::uint64_t>;
  std::vector<int> positions_of(const Splits& splits, int rank) const;
  bool is_ordered(const Sets& sets, MeshDims dims) const;
  bool includes(int id, int other) const;
  int interned(Sets sets);

  const Ranks& ranks_;
  int size_;
  std::size_t words_;  // per rank
  std::map<Sets, int> ids_;
  std::vector<const Sets*> sets_;  // [id]
  std::vector<std::vector<double>> counts_;
  std::map<Splits, int> by_splits_;
  std::vector<std::vector<int>> joined_;                // [id][dims]; -1: not yet known
  std::vector<std::vector<int>> ordered_;               // the same
  std::vector<std::vector<int>> needed_;                // [held][wanted]; -1: not yet known
  std::vector<std::vector<std::vector<double>>> kept_;  // [held][wanted]; empty: not yet known
};

}  // namespace coshard::oracle
