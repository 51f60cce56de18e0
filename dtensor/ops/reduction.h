#pragma once
// Shared by reductions over any set of dimensions: attributes, rule, shapes, forward and gradient.
// Each operator adds its name, its samples and optionally its own gradient.
#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"

namespace coshard {

// For a tensor of `shape`: the remaining shape, with or without the reduced dimensions; how many
// elements are reduced to one.
Shape remaining(const Shape& shape, std::int64_t mask, bool keep);
std::int64_t count_over(const Shape& shape, std::int64_t mask);
// The axes of the result, for an input with these axes.
std::string remaining_axes(const std::string& axes, std::int64_t mask, bool keep);
// The axes with '.' for each dimension of the mask.
std::string whole_axes(std::string axes, std::int64_t mask);

// A local tensor read as [outer, extent, inner], where extent covers the dimensions of the mask:
// the tensor itself, or a copy with the remaining dimensions first.
struct MaskedLines {
  Tensor x;
  Lines n;
  bool moved = false;  // x has another order of dimensions than the tensor
};
MaskedLines masked_lines(const Tensor& tensor, std::int64_t mask);
// A view of `tensor` with the dimensions of the mask last.
Tensor mask_last(const Tensor& tensor, std::int64_t mask);

// An operator on one tensor. `backward` null: kernels::ReduceGrad.
OpDef reduction_op(std::string_view name, std::vector<OpDef::Sample> (*samples)(),
                   void (*backward)(GradContext&) = nullptr);
// A sample for such an operator.
OpDef::Sample reduction_sample(const Shape& shape, kernels::ReduceOp op, std::int64_t mask,
                               bool keep = false, double alpha = 0);
Tensor reduce(const OpDef& op, kernels::ReduceOp kernel, const Tensor& x, const Dims& dims,
              bool keepdim, double alpha = 0);

// Integers and bool as i64; floating-point tensors as they are.
Tensor as_sum_dtype(const Tensor& x);
// bf16 and f16 as f32, for operators whose partial values are f32; others as they are.
Tensor as_statistic(const Tensor& x);

}  // namespace coshard
