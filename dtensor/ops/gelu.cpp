#include "dtensor/ops/activation.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

// attrs.ints: 1 for the approximation by tanh
bool by_tanh(const OpContext& c) { return c.attrs.ints[0] == 1; }

void gelu_forward(OpContext& c) {
  activation_forward(c, by_tanh(c) ? kernels::UnaryOp::GeluTanh : kernels::UnaryOp::Gelu);
}
void gelu_grad_forward(OpContext& c) {
  activation_grad_forward(c,
                          by_tanh(c) ? kernels::UnaryGradOp::GeluTanh : kernels::UnaryGradOp::Gelu);
}

const OpDef& gelu_backward_op() {
  static const OpDef op{.name = "gelu_backward",
                        .rule = activation_grad_rule,
                        .infer = same_as_first,
                        .forward = gelu_grad_forward,
                        .backward = nullptr,
                        .flops = one_per_element,
                        .samples = no_samples};
  return op;
}

void gelu_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, call1(gelu_backward_op(), {c.out_grad[0], c.in[0]}, c.attrs));
}

std::vector<OpDef::Sample> gelu_samples() {
  return {{{input({3, 5})}, {{0}, {}}}, {{input({2, 3, 4})}, {{1}, {}}}};
}

const OpDef& gelu_op() {
  static const OpDef op{.name = "gelu",
                        .rule = elementwise_rule,
                        .infer = activation_infer,
                        .forward = gelu_forward,
                        .backward = gelu_backward,
                        .flops = one_per_element,
                        .saves_out = 0,
                        .samples = gelu_samples};
  return op;
}

}  // namespace

Tensor gelu(const Tensor& x, bool tanh_approximation) {
  return call1(gelu_op(), {x}, {{tanh_approximation}, {}});
}

std::span<const OpDef* const> gelu_ops() {
  static const OpDef* const ops[] = {&gelu_op(), &gelu_backward_op()};
  return ops;
}

}  // namespace coshard
