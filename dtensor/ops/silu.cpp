#include "dtensor/ops/activation.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

void silu_forward(OpContext& c) { activation_forward(c, kernels::UnaryOp::Silu); }
void silu_grad_forward(OpContext& c) { activation_grad_forward(c, kernels::UnaryGradOp::Silu); }

const OpDef& silu_backward_op() {
  static const OpDef op{.name = "silu_backward",
                        .rule = activation_grad_rule,
                        .infer = same_as_first,
                        .forward = silu_grad_forward,
                        .backward = nullptr,
                        .flops = one_per_element,
                        .samples = no_samples};
  return op;
}

void silu_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, call1(silu_backward_op(), {c.out_grad[0], c.in[0]}));
}

std::vector<OpDef::Sample> silu_samples() {
  return {{{input({3, 5})}, {}}, {{input({2, 3, 4})}, {}}};
}

const OpDef& silu_op() {
  static const OpDef op{.name = "silu",
                        .rule = elementwise_rule,
                        .infer = activation_infer,
                        .forward = silu_forward,
                        .backward = silu_backward,
                        .flops = one_per_element,
                        .saves_out = 0,
                        .samples = silu_samples};
  return op;
}

}  // namespace

Tensor silu(const Tensor& x) { return call1(silu_op(), {x}); }

std::span<const OpDef* const> silu_ops() {
  static const OpDef* const ops[] = {&silu_op(), &silu_backward_op()};
  return ops;
}

}  // namespace coshard
