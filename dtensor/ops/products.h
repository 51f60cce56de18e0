#pragma once
// Shared by matmul and linear. matrix_of and batch_of return local tensors with a unit stride in
// one of the last two dimensions, as the kernel needs them, and copy only if no such view exists.
#include <coshard/dtensor/tensor/tensor.h>
#include "kernels/args.h"

namespace coshard {

Tensor matrix_of(const Tensor& local);  // [..., k] as [rows, k]
Tensor batch_of(const Tensor& local);   // [..., m, k] as [batch, m, k]
// [..., k] as [batch, rows, k]: the smallest batch for which `local` can be viewed like that.
Shape batch_shape(const Tensor& local);
Tensor batch_of(const Tensor& local, const Shape& shape);
kernels::View transposed(kernels::View matrix);

// a[..., k]^T @ b[..., n] over all rows -> [k, n]: the gradient of a weight.
Tensor matmul_rows(const Tensor& a, const Tensor& b);

}  // namespace coshard
