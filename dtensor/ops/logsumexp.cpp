#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ReduceOp;

[[gnu::cold]] std::vector<OpDef::Sample> logsumexp_samples() {
  return {reduction_sample({3, 5}, ReduceOp::LogSumExp, 0b10),
          reduction_sample({2, 3, 4}, ReduceOp::LogSumExp, 0b101, true)};
}

const OpDef& logsumexp_op() {
  static const OpDef op = reduction_op("logsumexp", logsumexp_samples);
  return op;
}

}  // namespace

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  const Tensor real = to(x, floating_type(x.dtype()));
  return reduce(logsumexp_op(), ReduceOp::LogSumExp, real, dims, keepdim);
}

std::span<const OpDef* const> logsumexp_ops() {
  static const OpDef* const ops[] = {&logsumexp_op()};
  return ops;
}

}  // namespace coshard
