#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ReduceOp;

[[gnu::cold]] std::vector<OpDef::Sample> prod_samples() {
  return {reduction_sample({3, 4}, ReduceOp::Product, 0b01),
          reduction_sample({2, 3, 2}, ReduceOp::Product, 0b111),
          reduction_sample({2, 3, 2}, ReduceOp::Product, 0b010, true)};
}

const OpDef& prod_op() {
  static const OpDef op = reduction_op("prod", prod_samples);
  return op;
}

}  // namespace

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return reduce(prod_op(), ReduceOp::Product, as_sum_dtype(x), dims, keepdim);
}

std::span<const OpDef* const> prod_ops() {
  static const OpDef* const ops[] = {&prod_op()};
  return ops;
}

}  // namespace coshard
