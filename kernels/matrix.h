#pragma once
// One matmul operand as libraries expect it: [batch,] rows, columns with strides in elements.
// Shared by back ends that use a library for GEMMs. Pure values.
#include "kernels/args/matmul.h"

namespace coshard::kernels {

struct Matrix {
  void* data;
  std::int64_t batch, rows, columns, batch_stride, row_stride, column_stride;

  Matrix transposed() const {
    return {data, batch, columns, rows, batch_stride, column_stride, row_stride};
  }
  bool folds() const { return batch_stride == rows * row_stride; }
  // Folds the batch into the rows; the stride of a single column must then exceed all rows.
  Matrix folded() const {
    const std::int64_t step = columns == 1 && row_stride == 1 ? batch * rows : column_stride;
    return {data, 1, batch * rows, columns, 0, row_stride, step};
  }
  Matrix single() const { return {data, 1, rows, columns, 0, row_stride, column_stride}; }
};

// Strides of dimensions of size 1 are meaningless: they get the value of a dense matrix.
inline Matrix matrix_of(const View& v) {
  const int lead = v.ndim - 2;
  Matrix m = {v.data,
              lead == 1 ? v.shape[0] : 1,
              v.shape[lead],
              v.shape[lead + 1],
              lead == 1 ? v.strides[0] : 0,
              v.strides[lead],
              v.strides[lead + 1]};
  if (m.columns == 1 && (m.rows == 1 || m.row_stride != 1)) m.column_stride = 1;
  if (m.rows == 1 && m.column_stride == 1) m.row_stride = m.columns;
  if (m.rows == 1 && m.column_stride != 1) m.row_stride = 1;
  if (m.columns == 1 && m.row_stride == 1 && m.column_stride != 1) m.column_stride = m.rows;
  if (m.batch == 1) m.batch_stride = 0;
  return m;
}

// Whether libraries accept the strides as they are: one unit stride, and the other spans at least a
// whole row or column.
inline bool is_plain(const Matrix& m) {
  if (m.batch_stride < 0) return false;
  return (m.column_stride == 1 && m.row_stride >= m.columns) ||
         (m.row_stride == 1 && m.column_stride >= m.rows);
}

}  // namespace coshard::kernels
