#pragma once
// The ranks of a mesh compare their local tensors, of which they make a DTensor.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// What one rank passes.
struct LocalFacts {
  DType dtype = DType::F32;
  Shape local_shape;
  std::optional<Shape> shape;  // logical, if given
};

// The first mismatch, as one line; empty: none. `facts`: one per rank of the mesh, row-major. Pure,
// so that all ranks get the same result.
std::string disagreement(const std::vector<LocalFacts>& facts, const std::vector<int>& mesh_shape,
                         const Layout& placements);

// Exchanges the facts over the mesh: one all_gather per mesh dimension of more than one rank.
// Error{BadInput} on all ranks if they disagree.
void check_locals(const LocalFacts& mine, const DeviceMesh& mesh, const Layout& placements);

// The logical shape if all shards have this local shape.
Shape even_shape(const Shape& local_shape, const std::vector<int>& mesh_shape,
                 const Layout& placements);

// The sizes of the sharded dimensions were derived from this rank's part alone: peers compare them
// at the next collective. `how`, static text, is shown before a size.
void note_sizes(const Tensor& made, std::string_view how);

}  // namespace coshard
