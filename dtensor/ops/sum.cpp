#include "dtensor/ops/reduction.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using kernels::ReduceOp;

void sum_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const auto r = c.attrs.as<ReductionAttrs>();
  const Shape& shape = c.in_info[0].shape;
  const bool leading = (r.mask & (r.mask + 1)) == 0;  // expand restores leading dimensions
  const Tensor& dy = c.out_grad[0];
  const Tensor kept = r.keepdim || leading ? dy : view(dy, remaining(shape, r.mask, true));
  c.sink.accumulate(0, expand(kept, shape));
}

[[gnu::cold]] std::vector<OpDef::Sample> sum_samples() {
  return {reduction_sample({3, 5}, ReduceOp::Sum, 0b11),
          reduction_sample({2, 3, 5}, ReduceOp::Sum, 0b10),
          reduction_sample({2, 3, 5}, ReduceOp::Sum, 0b11, true),
          reduction_sample({2, 3, 5}, ReduceOp::Sum, 0b101),
          reduction_sample({3, 5}, ReduceOp::Sum, 0b10, true)};
}

const OpDef& sum_op() {
  static const OpDef op = reduction_op("sum", sum_samples, sum_backward);
  return op;
}

[[gnu::cold]] std::vector<OpDef::Sample> nansum_samples() {
  return {reduction_sample({3, 5}, ReduceOp::NanSum, 0b10),
          reduction_sample({2, 3, 5}, ReduceOp::NanSum, 0b101, true)};
}

const OpDef& nansum_op() {
  static const OpDef op = reduction_op("nansum", nansum_samples);
  return op;
}

Tensor sum_mask(const Tensor& x, std::int64_t mask, bool keepdim) {
  return call1(sum_op(), {x}, ReductionAttrs{ReduceOp::Sum, mask, keepdim, 0});
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  return reduce(sum_op(), ReduceOp::Sum, as_sum_dtype(x), dims, keepdim);
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  require_floating("mean", {x.shape(), x.dtype()});
  const std::int64_t count = count_over(x.shape(), dims.mask(x.ndim(), "mean"));
  const Tensor total = sum(as_statistic(x), dims, keepdim);
  return to(mul(total, 1 / static_cast<double>(count)), x.dtype());
}

Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim, CallSite site) {
  const OperatorCall user(site);
  if (!is_floating(x.dtype())) return sum(x, dims, keepdim);
  return reduce(nansum_op(), ReduceOp::NanSum, x, dims, keepdim);
}

Tensor count_nonzero(const Tensor& x, const Dims& dims, CallSite site) {
  const OperatorCall user(site);
  return sum(to(x, DType::Bool), dims);
}

Tensor sum_to(const Tensor& gradient, const Shape& shape) {
  Tensor sums = gradient;
  const auto lead = static_cast<std::size_t>(gradient.ndim()) - shape.size();
  if (lead > 0) sums = sum_mask(sums, (std::int64_t{1} << lead) - 1, false);
  std::int64_t stretched = 0;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != sums.shape()[i]) stretched |= std::int64_t{1} << i;
  return stretched == 0 ? sums : sum_mask(sums, stretched, true);
}

std::span<const OpDef* const> sum_ops() {
  static const OpDef* const ops[] = {&sum_op(), &nansum_op()};
  return ops;
}

}  // namespace coshard
