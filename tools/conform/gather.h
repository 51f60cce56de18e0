#pragma once
// Assembles the logical tensor from what each rank holds, without the library's redistribute: the
// check must not depend on what it checks. Pure functions on snapshots.
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard::conform {

// One rank's view of a value at the end of a case.
struct Snapshot {
  bool defined = false;
  bool distributed = false;
  DType dtype = DType::F32;
  Shape local_shape;
  std::vector<double> values;  // row-major
  // of a DTensor
  Layout layout;
  Shape shape;
  std::vector<int> mesh_shape, mesh_ranks;
  std::string text;  // as in error messages
};
Snapshot snapshot(const Tensor& tensor);

struct Full {
  Shape shape;
  std::vector<double> values;
};
// The logical tensor as rank `viewer` would gather it: along a Replicate dimension it reads the
// ranks at its own coordinate. `all`: by world rank. A Partial is reduced mesh dimension by mesh
// dimension, the last first. Error{BadInput}: a rank's part does not match its layout.
Full gather(const std::vector<Snapshot>& all, int viewer);

}  // namespace coshard::conform
