#pragma once
// Products of few rows, as in the generation of text: the weight is what is read.
#include "kernels/matrix.h"

namespace coshard::kernels::cpu {

constexpr std::int64_t kMostFewRows = 8;

// out = alpha * a b + beta * out without a batch, in f32 or bf16: at most kMostFewRows
// rows of a, contiguous as those of out, and contiguous columns of b, such as the rows of a weight
// [out, in]. Each column is read once; sums are in f32, and depend neither on the number of rows
// nor on that of threads.
struct FewRows {
  Matrix out, a, b;
  DType dtype;
  float alpha, beta;
};

inline bool is_few_rows(const Matrix& out, const Matrix& a, const Matrix& b) {
  return out.batch == 1 && out.rows <= kMostFewRows && out.column_stride == 1 &&
         a.column_stride == 1 && b.row_stride == 1 && b.column_stride >= b.rows && b.columns > 1;
}

}  // namespace coshard::kernels::cpu
