#pragma once
// What matmul and linear share. matrix_of and batch_of see local tensors with a unit stride among
// the last two dimensions, as the kernel wants them, and copy only where strides allow no such
// view.
#include <coshard/dtensor/tensor.h>
#include "kernels/args.h"

namespace coshard {

Tensor matrix_of(const Tensor& local);  // [..., k] as [rows, k]
Tensor batch_of(const Tensor& local);   // [..., m, k] as [batch, m, k]
kernels::View transposed(kernels::View matrix);

// a[..., k]^T @ b[..., n] over all rows -> [k, n]: the gradient of a weight.
Tensor matmul_rows(const Tensor& a, const Tensor& b);

}  // namespace coshard
