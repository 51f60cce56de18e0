#include "dtensor/ops/activation.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

void relu_forward(OpContext& c) { activation_forward(c, kernels::UnaryOp::Relu); }
void relu_grad_forward(OpContext& c) { activation_grad_forward(c, kernels::UnaryGradOp::Relu); }

const OpDef& relu_backward_op() {
  static const OpDef op{.name = "relu_backward",
                        .rule = activation_grad_rule,
                        .infer = same_as_first,
                        .forward = relu_grad_forward,
                        .backward = nullptr,
                        .flops = one_per_element,
                        .samples = no_samples};
  return op;
}

void relu_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, call1(relu_backward_op(), {c.out_grad[0], c.in[0]}));
}

std::vector<OpDef::Sample> relu_samples() {
  return {{{input({3, 5})}, {}, 0.1, 2}, {{input({2, 3, 4})}, {}, -2, -0.1}};
}

const OpDef& relu_op() {
  static const OpDef op{.name = "relu",
                        .rule = elementwise_rule,
                        .infer = activation_infer,
                        .forward = relu_forward,
                        .backward = relu_backward,
                        .flops = one_per_element,
                        .saves_out = 0,
                        .samples = relu_samples};
  return op;
}

}  // namespace

Tensor relu(const Tensor& x) { return call1(relu_op(), {x}); }

std::span<const OpDef* const> relu_ops() {
  static const OpDef* const ops[] = {&relu_op(), &relu_backward_op()};
  return ops;
}

}  // namespace coshard
