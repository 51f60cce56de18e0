#pragma once
// What the reductions over any set of dimensions share: their attributes, rule, shapes, body and
// gradient. Each operator adds its name, its samples and, if it likes, a gradient of its own.
#include <coshard/dtensor/ops/letters.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"

namespace coshard {

// attrs.ints: the kernel's operation, bit mask of the dimensions, keepdim; attrs.reals: alpha
struct ReductionAttrs {
  explicit ReductionAttrs(const Attrs& attrs)
      : op(static_cast<kernels::ReduceOp>(attrs.ints[0])),
        mask(attrs.ints[1]),
        keep(attrs.ints[2] == 1),
        alpha(attrs.reals[0]) {}
  Attrs attrs() const { return {{static_cast<std::int64_t>(op), mask, keep}, {alpha}}; }
  bool over(std::size_t dim) const { return (mask >> dim & 1) != 0; }

  kernels::ReduceOp op;
  std::int64_t mask;
  bool keep;
  double alpha;
};

// For a tensor of `shape`: what remains of it, with and without the reduced dimensions; how many
// elements become one.
Shape remaining(const Shape& shape, std::int64_t mask, bool keep);
std::int64_t count_over(const Shape& shape, std::int64_t mask);
// The letters of the result, for an input with `letters`.
std::string remaining_letters(const std::string& letters, std::int64_t mask, bool keep);
// `letters` with '.' for each dimension of the mask.
std::string whole_letters(std::string letters, std::int64_t mask);

// A local tensor read as [outer, extent, inner], where the extent is the dimensions of the mask:
// the tensor itself, or a copy with the remaining dimensions first.
struct MaskedLines {
  Tensor x;
  Lines n;
  bool moved = false;  // x has another order of dimensions than the tensor
};
MaskedLines masked_lines(const Tensor& tensor, std::int64_t mask);
// A view of `tensor` with the dimensions of the mask last.
Tensor mask_last(const Tensor& tensor, std::int64_t mask);

// An operator on one tensor. `backward` null: that of kernels::ReduceGrad.
OpDef reduction_op(std::string_view name, std::vector<OpDef::Sample> (*samples)(),
                   void (*backward)(GradContext&) = nullptr);
// A sample of it.
OpDef::Sample reduction_sample(const Shape& shape, kernels::ReduceOp op, std::int64_t mask,
                               bool keep = false, double alpha = 0);
Tensor reduce(const OpDef& op, kernels::ReduceOp kernel, const Tensor& x, const Dims& dims,
              bool keepdim, double alpha = 0);

// Integers and booleans as i64; floating tensors as they are.
Tensor as_sum_dtype(const Tensor& x);
// bf16 and f16 as f32, for operators that keep their terms in it; the rest as it is.
Tensor as_statistic(const Tensor& x);

}  // namespace coshard
