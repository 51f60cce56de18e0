#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

std::vector<TensorInfo> add_infer(Infos in, const Attrs&) {
  require_same_dtype("add", in[0], in[1]);
  return {{broadcast(in[0].shape, in[1].shape, "add"), in[0].dtype}};
}

// attrs.reals: alpha
Rule add_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "PP", "P", kLinear);
  return rule;
}

void add_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  launch(c,
         kernels::Binary{kernels::BinaryOp::Add, view_of(c.make()), broadcast_view(c.in[0], shape),
                         broadcast_view(c.in[1], shape), c.attrs.reals[0]});
}

void add_backward(GradContext& c) {
  const Tensor& dy = c.out_grad[0];
  if (c.sink.wants(0)) c.sink.give(0, sum_to(dy, c.in_info[0].shape));
  if (!c.sink.wants(1)) return;
  const double alpha = c.attrs.reals[0];
  const Tensor db = sum_to(dy, c.in_info[1].shape);
  c.sink.give(1, alpha == 1 ? db : mul(db, alpha));
}

std::vector<OpDef::Sample> add_samples() {
  return {{{input({3, 5}), input({3, 5})}, {{}, {1}}},
          {{input({2, 3, 5}), input({5})}, {{}, {1}}},
          {{input({3, 1}), input({5})}, {{}, {-2}}}};
}

const OpDef& add_op() {
  static const OpDef op{.name = "add",
                        .rule = add_rule,
                        .infer = add_infer,
                        .forward = add_forward,
                        .backward = add_backward,
                        .flops = one_per_element,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = add_samples};
  return op;
}

// --- x + scalar ---

std::vector<TensorInfo> add_scalar_infer(Infos in, const Attrs&) {
  require_floating("add", in[0]);
  return {in[0]};
}

void add_scalar_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  Tensor& y = c.make();
  launch(c, kernels::Unary{kernels::UnaryOp::AddScalar, x.dtype(), x.local_numel(), x.data(),
                           y.data(), c.attrs.reals[0]});
}

void add_scalar_backward(GradContext& c) {
  if (c.sink.wants(0)) c.sink.give(0, c.out_grad[0]);
}

std::vector<OpDef::Sample> add_scalar_samples() { return {{{input({3, 5})}, {{}, {1.5}}}}; }

const OpDef& add_scalar_op() {
  static const OpDef op{.name = "add_scalar",
                        .rule = elementwise_rule,
                        .infer = add_scalar_infer,
                        .forward = add_scalar_forward,
                        .backward = add_scalar_backward,
                        .flops = one_per_element,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = add_scalar_samples};
  return op;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, double alpha) {
  return call1(add_op(), {a, b}, {{}, {alpha}});
}
Tensor sub(const Tensor& a, const Tensor& b) { return add(a, b, -1); }
Tensor add(const Tensor& a, double scalar) { return call1(add_scalar_op(), {a}, {{}, {scalar}}); }

std::span<const OpDef* const> add_ops() {
  static const OpDef* const ops[] = {&add_op(), &add_scalar_op()};
  return ops;
}

}  // namespace coshard
