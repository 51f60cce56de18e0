#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

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

Rule to_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  if (is_floating(in[0].dtype) && is_floating(target_of(attrs)))
    pass_partial(rule, "P", "P", kLinear);
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

}  // namespace

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Attrs attrs{{static_cast<std::int64_t>(dtype)}, {}};
  if (is_floating(x.dtype()) && is_floating(dtype)) return call1(to_op(), {x}, attrs);
  const NoGradGuard no_gradient;
  return call1(to_op(), {x}, attrs);
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : call1(contiguous_op(), {x}); }

std::span<const OpDef* const> to_ops() {
  static const OpDef* const ops[] = {&to_op(), &contiguous_op()};
  return ops;
}

}  // namespace coshard
