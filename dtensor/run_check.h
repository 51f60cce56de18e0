#pragma once
// What from_local(run_check) adds: the ranks of a mesh compare the tensors they give.
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// What one rank gives.
struct LocalFacts {
  DType dtype = DType::F32;
  Shape local_shape;
  std::optional<Shape> shape;  // logical, when it was given
};

// What is wrong with them, as one line; empty: nothing. `facts`: one per rank of the mesh,
// row-major. Pure, so that all ranks come to the same verdict.
std::string disagreement(const std::vector<LocalFacts>& facts, const std::vector<int>& mesh_shape,
                         const Layout& placements);

// Exchanges the facts over the mesh (one all_gather per mesh dimension of more than one rank).
// Error{BadInput} on all ranks when they disagree.
void check_locals(const LocalFacts& mine, const DeviceMesh& mesh, const Layout& placements);

// The logical shape of even shards of this size.
Shape even_shape(const Shape& local_shape, const std::vector<int>& mesh_shape,
                 const Layout& placements);

}  // namespace coshard
