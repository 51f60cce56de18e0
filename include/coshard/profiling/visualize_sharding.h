#pragma once
// Which rank holds what: a tensor split into cells wherever a rank's shard begins or ends, with the
// ranks that hold each cell, as text and as an SVG picture. Pure functions of the mesh's shape, the
// layout and the tensor's shape; no communication, any thread.
//
//   visualize_sharding({2, 2}, Layout(Shard(0), Shard(1)), {8, 6})
//     [8,6] S(0)S(1) on (2,2)
//            0:3   3:6
//     0:4      0     1
//     4:8      2     3
#include <ostream>
#include <string>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// The cells of two dimensions; `title` names the range in other sharded dimensions.
struct ShardingGrid {
  std::string title;                      // "" or "dim 2: 0:4"
  std::vector<Range> rows, columns;       // one full range where there is no dimension
  std::vector<std::vector<int>> holders;  // by row, then column: ranks, ascending
};

struct Sharding {
  std::string title;  // "[8,6] S(0)S(1) on (2,2)"
  std::string note;   // what a holder has if there is a Partial; "" without one
  // Rows are the first sharded dimension, columns the second; if fewer are sharded, the first of
  // the others.
  int row_dim = -1, column_dim = -1;  // -1: the tensor has no such dimension
  std::vector<ShardingGrid> grids;  // one per combination of ranges in the other sharded dimensions
  int terms = 1;  // of a Partial: how many holders have different terms; the others are replicas
};

// Ranks are numbered row-major over the mesh. Error{BadInput}: a layout with more or fewer entries
// than the mesh, or with a dim the tensor lacks.
Sharding sharding_of(const std::vector<int>& mesh_shape, const Layout& layout, const Shape& shape);
// World ranks of the tensor's mesh. Error{BadInput} for a plain tensor.
Sharding sharding_of(const DTensor& tensor);

// A table per grid.
std::string visualize_sharding(const Sharding& sharding);
std::string visualize_sharding(const std::vector<int>& mesh_shape, const Layout& layout,
                               const Shape& shape);
std::string visualize_sharding(const DTensor& tensor);

// The same as a picture: each cell is as large as its shard and lies in front of its replicas, one
// sheet each, four at most. Cells held by the same ranks share a color; the partial values of a
// Partial are dashed.
void write_sharding_svg(std::ostream& out, const Sharding& sharding);

}  // namespace coshard
#pragma GCC visibility pop
