#include <cmath>

#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ReduceOp;

[[gnu::cold]] std::vector<OpDef::Sample> vector_norm_samples() {
  return {reduction_sample({3, 5}, ReduceOp::AbsPower, 0b10, false, 2),
          reduction_sample({2, 3, 4}, ReduceOp::AbsPower, 0b101, true, 3),
          reduction_sample({3, 5}, ReduceOp::AbsPower, 0b11, false, 1),
          reduction_sample({3, 5}, ReduceOp::AbsPower, 0, false, 0.5),
          reduction_sample({3, 5}, ReduceOp::AbsMax, 0b01),
          reduction_sample({3, 5}, ReduceOp::AbsMin, 0b11, true)};
}

const OpDef& vector_norm_op() {
  static const OpDef op = reduction_op("vector_norm", vector_norm_samples);
  return op;
}

// The sum of powers, then its root, which is the same operator over no dimension.
Tensor norm_of(const Tensor& x, double ord, const Dims& dims, bool keepdim) {
  const OpDef& op = vector_norm_op();
  if (std::isinf(ord))
    return reduce(op, ord > 0 ? ReduceOp::AbsMax : ReduceOp::AbsMin, x, dims, keepdim);
  const Tensor powers = reduce(op, ReduceOp::AbsPower, x, dims, keepdim, ord);
  if (ord == 0 || ord == 1) return powers;
  return call1(op, {powers}, ReductionAttrs{ReduceOp::AbsPower, 0, false, 1 / ord});
}

}  // namespace

Tensor vector_norm(const Tensor& x, double ord, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  require_floating("vector_norm", {x.shape(), x.dtype()});
  return to(norm_of(as_statistic(x), ord, dims, keepdim), x.dtype());
}

std::span<const OpDef* const> vector_norm_ops() {
  static const OpDef* const ops[] = {&vector_norm_op()};
  return ops;
}

}  // namespace coshard
