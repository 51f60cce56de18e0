#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

Rule neg_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "P", "P", kLinear);
  return rule;
}

std::vector<TensorInfo> neg_infer(Infos in, const Attrs&) {
  require_floating("neg", in[0]);
  return {in[0]};
}

void neg_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  Tensor& y = c.make();
  launch(c, kernels::Unary{kernels::UnaryOp::Neg, x.dtype(), x.local_numel(), x.data(), y.data()});
}

void neg_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, neg(c.out_grad[0]));
}

std::vector<OpDef::Sample> neg_samples() { return {{{input({3, 5})}, {}}}; }

const OpDef& neg_op() {
  static const OpDef op{.name = "neg",
                        .rule = neg_rule,
                        .infer = neg_infer,
                        .forward = neg_forward,
                        .backward = neg_backward,
                        .flops = one_per_element,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = neg_samples};
  return op;
}

}  // namespace

Tensor neg(const Tensor& x) { return call1(neg_op(), {x}); }

std::span<const OpDef* const> neg_ops() {
  static const OpDef* const ops[] = {&neg_op()};
  return ops;
}

}  // namespace coshard
