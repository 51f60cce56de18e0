#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ReduceOp;

[[gnu::cold]] std::vector<OpDef::Sample> amax_samples() {
  return {reduction_sample({3, 5}, ReduceOp::Max, 0b10),
          reduction_sample({2, 3, 4}, ReduceOp::Max, 0b101, true),
          reduction_sample({5, 2}, ReduceOp::Max, 0b11)};
}

const OpDef& amax_op() {
  static const OpDef op = reduction_op("amax", amax_samples);
  return op;
}

[[gnu::cold]] std::vector<OpDef::Sample> amin_samples() {
  return {reduction_sample({3, 5}, ReduceOp::Min, 0b01),
          reduction_sample({2, 3, 4}, ReduceOp::Min, 0b110, true)};
}

const OpDef& amin_op() {
  static const OpDef op = reduction_op("amin", amin_samples);
  return op;
}

}  // namespace

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return reduce(amax_op(), ReduceOp::Max, x, dims, keepdim);
}

Tensor amin(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return reduce(amin_op(), ReduceOp::Min, x, dims, keepdim);
}

Tensor all(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return amin(to(x, DType::Bool), dims, keepdim);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return amax(to(x, DType::Bool), dims, keepdim);
}

std::span<const OpDef* const> amax_ops() {
  static const OpDef* const ops[] = {&amax_op(), &amin_op()};
  return ops;
}

}  // namespace coshard
