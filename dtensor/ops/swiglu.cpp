#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::vector<TensorInfo> swiglu_infer(Infos in, const Attrs&) {
  require_floating("swiglu", in[0]);
  require_same_dtype("swiglu", in[0], in[1]);
  CS_REQUIRE(in[0].shape == in[1].shape, "swiglu: shapes differ: ", in[0].shape, " and ",
             in[1].shape);
  return {in[0]};
}

Rule swiglu_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "RP", "P", kLinear);  // linear in b
  return rule;
}

void swiglu_forward(OpContext& c) {
  const Tensor a = local_contiguous(c.in[0]);
  const Tensor b = local_contiguous(c.in[1]);
  Tensor& y = c.make();
  launch(c,
         kernels::SwiGlu{a.dtype(), a.local_numel(), a.const_data(), b.const_data(), y.address()});
}

// in: dy, a, b; out: da, db
Rule swiglu_backward_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  rule.out.push_back(rule.out[0]);
  pass_partial(rule, "PRR", "PP", kLinear);
  return rule;
}

std::vector<TensorInfo> swiglu_backward_infer(Infos in, const Attrs&) { return {in[1], in[2]}; }

void swiglu_backward_forward(OpContext& c) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor a = local_contiguous(c.in[1]);
  const Tensor b = local_contiguous(c.in[2]);
  launch(c, kernels::SwiGluGrad{a.dtype(), a.local_numel(), dy.const_data(), a.const_data(),
                                b.const_data(), c.make(0).address(), c.make(1).address()});
}

const OpDef& swiglu_backward_op() {
  static const OpDef op{.name = "swiglu_backward",
                        .rule = swiglu_backward_rule,
                        .infer = swiglu_backward_infer,
                        .forward = swiglu_backward_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

void swiglu_backward(GradContext& c) {
  const Tensor in[] = {c.out_grad[0], c.in[0], c.in[1]};
  const auto grads = call(swiglu_backward_op(), in, {});
  for (int i = 0; i < 2; ++i)
    if (c.sink.needs_grad(i)) c.sink.accumulate(i, grads[static_cast<std::size_t>(i)]);
}

[[gnu::cold]] std::vector<OpDef::Sample> swiglu_samples() {
  return {{{input({3, 5}), input({3, 5})}, {}}, {{input({2, 3, 4}), input({2, 3, 4})}, {}}};
}

const OpDef& swiglu_op() {
  static const OpDef op{.name = "swiglu",
                        .rule = swiglu_rule,
                        .infer = swiglu_infer,
                        .forward = swiglu_forward,
                        .backward = swiglu_backward,
                        .saves_out = 0,
                        .samples = swiglu_samples};
  return op;
}

}  // namespace

Tensor swiglu(const Tensor& a, const Tensor& b, CallSite site) {
  const OperatorCall user(site);
  return call1(swiglu_op(), {a, b});
}

std::span<const OpDef* const> swiglu_ops() {
  static const OpDef* const ops[] = {&swiglu_op(), &swiglu_backward_op()};
  return ops;
}

}  // namespace coshard
