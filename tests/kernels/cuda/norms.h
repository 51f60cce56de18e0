#pragma once
// Rows of tests of norms.
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels::testing {

struct NormShape {
  std::int64_t rows, dim;
  std::string text() const { return " " + std::to_string(rows) + "x" + std::to_string(dim); }
};

inline const std::vector<NormShape> kNormShapes = {{0, 5},    {1, 1},    {3, 31},   {70, 8},
                                                   {9, 32},   {2, 33},   {40, 257}, {3, 1000},
                                                   {2, 5000}, {1, 13000}};

template <class F>
void each_norm(F&& f) {
  for (const DType dtype : kFloating) {
    for (const NormShape& s : kNormShapes) {
      for (const bool affine : {true, false}) f(dtype, s, affine);
    }
  }
}

}  // namespace coshard::kernels::testing
