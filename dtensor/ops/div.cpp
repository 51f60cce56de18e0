#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

std::vector<TensorInfo> div_infer(Infos in, const Attrs&) {
  require_floating("div", in[0]);
  require_same_dtype("div", in[0], in[1]);
  return {{broadcast(in[0].shape, in[1].shape, "div"), in[0].dtype}};
}

Rule div_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "PR", "P", kLinear);
  return rule;
}

void div_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  launch(c, kernels::Binary{kernels::BinaryOp::Div, view_of(c.make()),
                            broadcast_view(c.in[0], shape), broadcast_view(c.in[1], shape)});
}

void div_backward(GradContext& c) {
  const Tensor& b = c.in[1];
  const Tensor scaled = div(c.out_grad[0], b);
  if (c.sink.wants(0)) c.sink.give(0, sum_to(scaled, c.in_info[0].shape));
  // d(a/b)/db = -(a/b)/b
  if (c.sink.wants(1)) c.sink.give(1, neg(sum_to(mul(scaled, c.out[0]), c.in_info[1].shape)));
}

std::vector<OpDef::Sample> div_samples() {
  return {{{input({3, 5}), input({3, 5})}, {}, 0.5, 2},
          {{input({2, 3, 5}), input({5})}, {}, 0.5, 2},
          {{input({3, 1}), input({3, 5})}, {}, 0.5, 2}};
}

const OpDef& div_op() {
  static const OpDef op{.name = "div",
                        .rule = div_rule,
                        .infer = div_infer,
                        .forward = div_forward,
                        .backward = div_backward,
                        .flops = one_per_element,
                        .saves_in = 0b10,
                        .samples = div_samples};
  return op;
}

}  // namespace

Tensor div(const Tensor& a, const Tensor& b) { return call1(div_op(), {a, b}); }

std::span<const OpDef* const> div_ops() {
  static const OpDef* const ops[] = {&div_op()};
  return ops;
}

}  // namespace coshard
