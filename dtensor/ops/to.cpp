// Casts, copies, and constants in the shape of a tensor.
#include "dtensor/ops/ops.h"
#include "dtensor/ops/pointwise.h"

namespace coshard {
namespace {

void copy_forward(OpContext& c) {
  const kernels::View from = view_of(c.in[0]);
  launch(c, kernels::Copy{view_of(c.make()), from});
}

// attrs.ints: the new dtype
DType target_of(const Attrs& attrs) { return static_cast<DType>(attrs.ints[0]); }

std::vector<TensorInfo> to_infer(Infos in, const Attrs& attrs) {
  return {{in[0].shape, target_of(attrs)}};
}

// Rounding to a narrower type keeps the order of terms, and only to a wider one their sum.
Rule to_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  const DType to = target_of(attrs);
  if (to == DType::Bool) return rule;
  const bool wider = promoted(in[0].dtype, to) == to && in[0].dtype != DType::I64;
  if (wider && is_floating(in[0].dtype) == is_floating(to)) pass_one(rule, 0, Pass::Linear);
  pass_one(rule, 0, Pass::Rising);
  return rule;
}

void to_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, to(c.out_grad[0], c.in_info[0].dtype));
}

std::vector<OpDef::Sample> to_samples() {
  return {{{input({3, 5}, DType::F32)}, {{static_cast<std::int64_t>(DType::F64)}, {}}}};
}

const OpDef& to_op() {
  static const OpDef op{.name = "to",
                        .rule = to_rule,
                        .infer = to_infer,
                        .forward = copy_forward,
                        .backward = to_backward,
                        .flops = no_flops,
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
  if (c.sink.wants(0)) c.sink.give(0, c.out_grad[0]);
}

std::vector<OpDef::Sample> contiguous_samples() { return {{{input({3, 5})}, {}}}; }

const OpDef& contiguous_op() {
  static const OpDef op{.name = "contiguous",
                        .rule = contiguous_rule,
                        .infer = same_as_first,
                        .forward = copy_forward,
                        .backward = contiguous_backward,
                        .flops = no_flops,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = contiguous_samples};
  return op;
}

// --- full_like (attrs.reals: the value) ---

// The value does not depend on the input's: a Partial gives a Replicate at once.
Rule full_like_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  for (const Reduce reduce : kMoving) rule.extra.push_back({{Partial(reduce)}, {Replicate()}});
  return rule;
}

void full_like_forward(OpContext& c) {
  Tensor& y = c.make();
  launch(c, kernels::Fill{y.data(), y.dtype(), y.local_numel(), c.attrs.reals[0]});
}

std::vector<OpDef::Sample> full_like_samples() { return {{{input({3, 5})}, {{}, {2.5}}}}; }

const OpDef& full_like_op() {
  static const OpDef op{.name = "full_like",
                        .rule = full_like_rule,
                        .infer = same_as_first,
                        .forward = full_like_forward,
                        .backward = nullptr,
                        .flops = no_flops,
                        .samples = full_like_samples};
  return op;
}

}  // namespace

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Attrs attrs{{static_cast<std::int64_t>(dtype)}, {}};
  if (is_floating(x.dtype()) && is_floating(dtype)) return call1(to_op(), {x}, attrs);
  return call_untaped(to_op(), {x}, attrs);
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : call1(contiguous_op(), {x}); }

Tensor clone(const Tensor& x) { return call1(contiguous_op(), {x}); }
Tensor full_like(const Tensor& x, const Scalar& value) {
  return call_untaped(full_like_op(), {x}, {{}, {value.value}});
}

std::span<const OpDef* const> to_ops() {
  static const OpDef* const ops[] = {&to_op(), &contiguous_op(), &full_like_op()};
  return ops;
}

}  // namespace coshard
