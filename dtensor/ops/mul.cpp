#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

std::vector<TensorInfo> mul_infer(Infos in, const Attrs&) {
  require_same_dtype("mul", in[0], in[1]);
  return {{broadcast(in[0].shape, in[1].shape, "mul"), in[0].dtype}};
}

Rule mul_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "PR", "P", kLinear);
  pass_partial(rule, "RP", "P", kLinear);
  return rule;
}

void mul_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  launch(c, kernels::Binary{kernels::BinaryOp::Mul, view_of(c.make()),
                            broadcast_view(c.in[0], shape), broadcast_view(c.in[1], shape)});
}

void mul_backward(GradContext& c) {
  const Tensor& dy = c.out_grad[0];
  if (c.sink.wants(0)) c.sink.give(0, sum_to(mul(dy, c.in[1]), c.in_info[0].shape));
  if (c.sink.wants(1)) c.sink.give(1, sum_to(mul(dy, c.in[0]), c.in_info[1].shape));
}

std::vector<OpDef::Sample> mul_samples() {
  return {{{input({3, 5}), input({3, 5})}, {}},
          {{input({2, 3, 5}), input({3, 1})}, {}},
          {{input({5}), input({3, 5})}, {}}};
}

const OpDef& mul_op() {
  static const OpDef op{.name = "mul",
                        .rule = mul_rule,
                        .infer = mul_infer,
                        .forward = mul_forward,
                        .backward = mul_backward,
                        .flops = one_per_element,
                        .saves_out = 0,
                        .samples = mul_samples};
  return op;
}

// --- x * scalar ---

std::vector<TensorInfo> mul_scalar_infer(Infos in, const Attrs&) {
  require_floating("mul", in[0]);
  return {in[0]};
}

Rule mul_scalar_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "P", "P", kLinear);
  return rule;
}

void mul_scalar_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  Tensor& y = c.make();
  launch(c, kernels::Unary{kernels::UnaryOp::MulScalar, x.dtype(), x.local_numel(), x.data(),
                           y.data(), c.attrs.reals[0]});
}

void mul_scalar_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, mul(c.out_grad[0], c.attrs.reals[0]));
}

std::vector<OpDef::Sample> mul_scalar_samples() {
  return {{{input({3, 5})}, {{}, {-0.75}}}, {{input({})}, {{}, {2}}}};
}

const OpDef& mul_scalar_op() {
  static const OpDef op{.name = "mul_scalar",
                        .rule = mul_scalar_rule,
                        .infer = mul_scalar_infer,
                        .forward = mul_scalar_forward,
                        .backward = mul_scalar_backward,
                        .flops = one_per_element,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = mul_scalar_samples};
  return op;
}

}  // namespace

Tensor mul(const Tensor& a, const Tensor& b) { return call1(mul_op(), {a, b}); }
Tensor mul(const Tensor& a, double scalar) { return call1(mul_scalar_op(), {a}, {{}, {scalar}}); }

std::span<const OpDef* const> mul_ops() {
  static const OpDef* const ops[] = {&mul_op(), &mul_scalar_op()};
  return ops;
}

}  // namespace coshard
