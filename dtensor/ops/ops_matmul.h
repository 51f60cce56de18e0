#pragma once
// Products: matmul and what is written with it.
// Conventions: dtensor/ops/ops.h.
#include <optional>

#include "dtensor/tensor.h"

namespace coshard {

// a[..., m, k] @ b[k, n], or with equal leading dims a[..., m, k] @ b[..., k, n]. 0 collectives for
// (S(m), R), (R, S(n)), (S(k), S(k)) -> Partial, and a cut leading dim.
Tensor matmul(const Tensor& a, const Tensor& b);
// x[..., in] @ weight[out, in]^T + bias[out] (optional). The gradient of a leaf weight is deferred
// under the next collective.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
// into += or = a @ b, off the tape, on plain tensors (rows of a result as shards arrive).
void matmul_into(const Tensor& into, const Tensor& a, const Tensor& b, bool accumulate = false);

}  // namespace coshard
