#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/pointwise_forward.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

void require_mask(std::string_view op, const TensorInfo& mask) {
  CS_REQUIRE(mask.defined, op, ": the condition is undefined");
  CS_REQUIRE(mask.dtype == DType::Bool, op, ": the condition is ", mask.dtype, mask.shape,
             ", not bool");
}

// in: condition, x, y
std::vector<TensorInfo> where_infer(Infos in, const Attrs&) {
  require_mask("where", in[0]);
  TensorInfo out = broadcast_infer("where", in.subspan(1))[0];
  out.shape = broadcast(in[0].shape, out.shape, "where");
  return {out};
}

Rule where_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  if (in[1].dtype != DType::Bool) pass_partial(rule, "RPP", "P", kMoving);
  return rule;
}

void where_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  launch(c, kernels::Where{view_of(c.make()), broadcast_view(c.in[0], shape),
                           broadcast_view(c.in[1], shape), broadcast_view(c.in[2], shape)});
}

Tensor masked(const Tensor& x, const Tensor& mask, double value, bool where_false);

void where_backward(GradContext& c) {
  const Tensor& dy = c.out_grad[0];
  for (int i : {1, 2})
    if (c.sink.needs_grad(i))
      c.sink.accumulate(
          i, sum_to(masked(dy, c.in[0], 0, i == 1), c.in_info[static_cast<std::size_t>(i)].shape));
}

[[gnu::cold]] std::vector<OpDef::Sample> where_samples() {
  const TensorInfo condition = input({3, 5}, DType::Bool);
  OpDef::Sample even{{condition, input({3, 5}), input({3, 5})}, {}};
  OpDef::Sample stretched{{condition, input({2, 3, 1}), input({})}, {}};
  even.int_high = stretched.int_high = 2;
  return {even, stretched};
}

const OpDef& where_op() {
  static const OpDef op{.name = "where",
                        .rule = where_rule,
                        .infer = where_infer,
                        .forward = where_forward,
                        .backward = where_backward,
                        .saves_in = 0b1,
                        .saves_out = 0,
                        .samples = where_samples};
  return op;
}

// --- masked_fill: in: x, mask ---

std::vector<TensorInfo> masked_fill_infer(Infos in, const Attrs&) {
  require_mask("masked_fill", in[1]);
  return {{broadcast(in[0].shape, in[1].shape, "masked_fill"), in[0].dtype}};
}

// Writes the value into every term: correct for avg, min and max, for a sum only if it is 0.
Rule masked_fill_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  const double value = attrs.as<MaskedFillAttrs>().value;
  if (in[0].dtype == DType::Bool) return rule;
  pass_one(rule, 0, value == 0 ? Pass::Linear : Pass::Affine);
  pass_one(rule, 0, Pass::MonotoneIncreasing);
  if (value == 0 || value == 1) rule.extra.push_back(partial_strategy("PR", "P", Reduce::Product));
  return rule;
}

void masked_fill_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  const auto a = c.attrs.as<MaskedFillAttrs>();
  kernels::Where args{view_of(c.make()), broadcast_view(c.in[1], shape), {}, {}, a.value};
  (a.where_false ? args.x : args.y) = broadcast_view(c.in[0], shape);
  launch(c, args);
}

void masked_fill_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const bool where_false = c.attrs.as<MaskedFillAttrs>().where_false;
  c.sink.accumulate(0, sum_to(masked(c.out_grad[0], c.in[1], 0, where_false), c.in_info[0].shape));
}

[[gnu::cold]] std::vector<OpDef::Sample> masked_fill_samples() {
  OpDef::Sample zero{{input({3, 5}), input({3, 5}, DType::Bool)}, MaskedFillAttrs{false, 0}};
  OpDef::Sample value{{input({3, 1}), input({2, 3, 4}, DType::Bool)}, MaskedFillAttrs{true, -1.5}};
  zero.int_high = value.int_high = 2;
  return {zero, value};
}

const OpDef& masked_fill_op() {
  static const OpDef op{.name = "masked_fill",
                        .rule = masked_fill_rule,
                        .infer = masked_fill_infer,
                        .forward = masked_fill_forward,
                        .backward = masked_fill_backward,
                        .saves_in = 0b10,
                        .saves_out = 0,
                        .reals_by_kind = true,
                        .pointwise = true,
                        .samples = masked_fill_samples};
  return op;
}

Tensor masked(const Tensor& x, const Tensor& mask, double value, bool where_false) {
  return call1(masked_fill_op(), {x, mask}, MaskedFillAttrs{where_false, value});
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& x, const Tensor& y, CallSite site) {
  const OperatorCall user(site);
  const DType type = result_type(x, y);
  return call1(where_op(), {condition, to(x, type), to(y, type)});
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Scalar& value, CallSite site) {
  const OperatorCall user(site);
  require_fits(value.value, x.dtype(), "masked_fill");
  return masked(x, mask, value.value, false);
}

Tensor masked_fill_(const Tensor& x, const Tensor& mask, const Scalar& value, CallSite site) {
  const OperatorCall user(site);
  require_fits(value.value, x.dtype(), "masked_fill_");
  const Tensor in[] = {x, mask};
  return call_in_place(masked_fill_op(), in,
                       MaskedFillAttrs{.where_false = false, .value = value.value});
}

std::span<const OpDef* const> where_ops() {
  static const OpDef* const ops[] = {&where_op(), &masked_fill_op()};
  return ops;
}

}  // namespace coshard
