#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ReduceOp;

[[gnu::cold]] std::vector<OpDef::Sample> variance_samples() {
  return {reduction_sample({3, 5}, ReduceOp::Variance, 0b10, false, 1),
          reduction_sample({2, 3, 4}, ReduceOp::Variance, 0b101, true, 0),
          reduction_sample({3, 5}, ReduceOp::Deviation, 0b01, false, 1),
          reduction_sample({2, 3, 4}, ReduceOp::Deviation, 0b111, false, 0.5)};
}

const OpDef& variance_op() {
  static const OpDef op = reduction_op("var", variance_samples);
  return op;
}

}  // namespace

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return reduce(variance_op(), ReduceOp::Variance, x, dims, keepdim, correction);
}

Tensor stdev(const Tensor& x, const Dims& dims, double correction, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return reduce(variance_op(), ReduceOp::Deviation, x, dims, keepdim, correction);
}

std::span<const OpDef* const> variance_ops() {
  static const OpDef* const ops[] = {&variance_op()};
  return ops;
}

}  // namespace coshard
