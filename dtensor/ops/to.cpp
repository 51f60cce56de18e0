// Casts, copies, and constants in the shape of a tensor.
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/pointwise_forward.h"
#include "dtensor/ops/writes.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

void to_forward(OpContext& c) {
  const kernels::View from = view_of(c.in[0]);
  launch(c, kernels::Copy{view_of(c.make()), from});
}

std::vector<TensorInfo> to_infer(Infos in, const Attrs& attrs) {
  return {{in[0].shape, attrs.as<ToAttrs>().dtype}};
}

// Every cast preserves the order of terms, but only one to a wider type preserves their sum.
Rule to_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  const DType to = attrs.as<ToAttrs>().dtype;
  if (to == DType::Bool || is_float8(to) || is_float8(in[0].dtype)) return rule;
  const bool wider = promoted(in[0].dtype, to) == to && in[0].dtype != DType::I64;
  if (wider && is_floating(in[0].dtype) == is_floating(to)) pass_one(rule, 0, Pass::Linear);
  pass_one(rule, 0, Pass::MonotoneIncreasing);
  return rule;
}

void to_backward(GradContext& c) {
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, to(c.out_grad[0], c.in_info[0].dtype));
}

[[gnu::cold]] std::vector<OpDef::Sample> to_samples() {
  return {{{input({3, 5}, DType::F32)}, ToAttrs{DType::F64}}};
}

const OpDef& to_op() {
  static const OpDef op{.name = "to",
                        .rule = to_rule,
                        .infer = to_infer,
                        .forward = to_forward,
                        .backward = to_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = to_samples};
  return op;
}

// --- contiguous ---

Rule contiguous_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void contiguous_backward(GradContext& c) {
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, c.out_grad[0]);
}

[[gnu::cold]] std::vector<OpDef::Sample> contiguous_samples() { return {{{input({3, 5})}, {}}}; }

const OpDef& contiguous_op() {
  static const OpDef op{.name = "contiguous",
                        .rule = contiguous_rule,
                        .infer = same_as_first,
                        .forward = to_forward,
                        .backward = contiguous_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = contiguous_samples};
  return op;
}

// --- full_like ---

// The result does not depend on the input's values: a Partial gives a Replicate directly.
Rule full_like_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  for (const Reduce reduce : kMoving) rule.extra.push_back({{Partial(reduce)}, {Replicate()}});
  return rule;
}

void full_like_forward(OpContext& c) {
  Tensor& y = c.make();
  launch(c,
         kernels::Fill{y.address(), y.dtype(), y.local_numel(), c.attrs.as<ScalarAttrs>().value});
}

// Only for the in-place form: the overwritten values get the gradient 0.
void full_like_backward(GradContext& c) {
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, zeros_like(c.out_grad[0]));
}

[[gnu::cold]] std::vector<OpDef::Sample> full_like_samples() {
  return {{{input({3, 5})}, ScalarAttrs{2.5}}};
}

const OpDef& full_like_op() {
  static const OpDef op{.name = "full_like",
                        .rule = full_like_rule,
                        .infer = same_as_first,
                        .forward = full_like_forward,
                        .backward = full_like_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .reads_in = 0,
                        .reals_by_kind = true,
                        .pointwise = true,
                        .samples = full_like_samples};
  return op;
}

// --- copy: in: x, y. What x becomes by x.copy_(y): y in x's shape and dtype ---

std::vector<TensorInfo> copy_infer(Infos in, const Attrs&) {
  CS_REQUIRE(broadcast(in[0].shape, in[1].shape, "copy") == in[0].shape, "copy: ", in[1].shape,
             " does not broadcast to ", in[0].shape);
  return {in[0]};
}

// x's own terms do not matter.
Rule copy_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  for (const Reduce reduce : kMoving)
    rule.extra.push_back({{Partial(reduce), Replicate()}, {Replicate()}});
  pass_partial(rule, "PP", "P", kMoving);
  return rule;
}

void copy_forward(OpContext& c) {
  const kernels::View from = broadcast_view(c.in[1], c.out_shape[0]);
  launch(c, kernels::Copy{view_of(c.make()), from});
}

void copy_backward(GradContext& c) {
  const Tensor& dy = c.out_grad[0];
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, zeros_like(dy));
  if (c.sink.needs_grad(1))
    c.sink.accumulate(1, to(sum_to(dy, c.in_info[1].shape), c.in_info[1].dtype));
}

[[gnu::cold]] std::vector<OpDef::Sample> copy_samples() {
  return {{{input({3, 5}), input({3, 5})}, {}}, {{input({2, 3, 4}), input({3, 1})}, {}}};
}

const OpDef& copy_op() {
  static const OpDef op{.name = "copy",
                        .rule = copy_rule,
                        .infer = copy_infer,
                        .forward = copy_forward,
                        .backward = copy_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .reads_in = 0b10,
                        .pointwise = true,
                        .samples = copy_samples};
  return op;
}

}  // namespace

Tensor to(const Tensor& x, DType dtype, CallSite site) {
  const OperatorCall user(site);
  if (x.dtype() == dtype) return x;
  CS_REQUIRE(!is_float8(dtype) || !grad_enabled() || !x.requires_grad(), "to: ", x,
             " requires a gradient, which ", dtype, " does not have: cast its detach()");
  const ToAttrs attrs{dtype};
  if (is_floating(x.dtype()) && is_floating(dtype)) return call1(to_op(), {x}, attrs);
  return call_untaped(to_op(), {x}, attrs);
}

Tensor contiguous(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  if (is_row_major(x)) return x;
  const Tensor copy = call1(contiguous_op(), {x});
  if (x.is_distributed() && has_unknown_strides(x)) {
    copy.set_unwritable(kUnsureView);
    const auto view = std::make_shared<OperatorView>(x, grad_enabled(), contiguous_op(), Attrs());
    view->unsure = view->may_be_itself = true;
    copy.set_copied_view(view);
  }
  return copy;
}

Tensor clone(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  return call1(contiguous_op(), {x});
}
Tensor full_like(const Tensor& x, const Scalar& value, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(x.defined(), "full_like: the first input is undefined");
  require_fits(value.value, x.dtype(), "full_like");
  return call_untaped(full_like_op(), {x}, ScalarAttrs{value.value});
}

Tensor fill_(const Tensor& x, const Scalar& value, CallSite site) {
  const OperatorCall user(site);
  require_fits(value.value, x.dtype(), "fill_");
  return call_into(full_like_op(), x, x.dtype(), ScalarAttrs{value.value});
}
Tensor zero_(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  return fill_(x, 0);
}
Tensor copy_(const Tensor& x, const Tensor& y, CallSite site) {
  const OperatorCall user(site);
  const Tensor in[] = {x, y};
  return call_in_place(copy_op(), in);
}

std::span<const OpDef* const> to_ops() {
  static const OpDef* const ops[] = {&to_op(), &contiguous_op(), &full_like_op(), &copy_op()};
  return ops;
}

}  // namespace coshard
