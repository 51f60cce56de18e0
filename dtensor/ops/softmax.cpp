#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::vector<TensorInfo> softmax_infer(Infos in, const Attrs&) {
  require_floating("softmax", in[0]);
  return {in[0]};
}

// dim stays whole, in every input and the output
Rule softmax_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  std::string text = axes(in[0].shape.size());
  if (!text.empty()) text[static_cast<std::size_t>(attrs.as<SoftmaxAttrs>().dim)] = '.';
  rule.in.assign(in.size(), text);
  rule.out = {text};
  rule.strided = true;
  return rule;
}

void softmax_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const auto a = c.attrs.as<SoftmaxAttrs>();
  const Lines n = lines_of(x.local_shape(), a.dim);
  Tensor& y = c.make();
  launch(c, kernels::Softmax{x.dtype(), a.log, n.outer, n.extent, n.inner, x.const_data(),
                             y.address()});
}

// in: dy, y
Rule softmax_backward_rule(Infos in, const Attrs& attrs) {
  Rule rule = softmax_rule(in, attrs);
  pass_partial(rule, "PR", "P", kLinear);
  return rule;
}

void softmax_backward_forward(OpContext& c) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor y = local_contiguous(c.in[1]);
  const auto a = c.attrs.as<SoftmaxAttrs>();
  const Lines n = lines_of(y.local_shape(), a.dim);
  Tensor& dx = c.make();
  launch(c, kernels::SoftmaxGrad{y.dtype(), a.log, n.outer, n.extent, n.inner, dy.const_data(),
                                 y.const_data(), dx.address()});
}

const OpDef& softmax_backward_op() {
  static const OpDef op{.name = "softmax_backward",
                        .rule = softmax_backward_rule,
                        .infer = same_as_first,
                        .forward = softmax_backward_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

// y (dy - sum(y dy)), or dy - exp(y) sum(dy)
Tensor differentiable_gradient(const Tensor& dy, const Tensor& y, const SoftmaxAttrs& a) {
  if (a.log) return sub(dy, mul(exp(y), sum(dy, a.dim, true)));
  return mul(y, sub(dy, sum(mul(y, dy), a.dim, true)));
}

void softmax_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Tensor& dy = c.out_grad[0];
  const Tensor& y = c.out[0];
  c.sink.accumulate(0, grad_enabled() ? differentiable_gradient(dy, y, c.attrs.as<SoftmaxAttrs>())
                                      : call1(softmax_backward_op(), {dy, y}, c.attrs));
}

[[gnu::cold]] std::vector<OpDef::Sample> softmax_samples() {
  return {{{input({3, 5})}, SoftmaxAttrs{1, false}},
          {{input({2, 3, 4})}, SoftmaxAttrs{1, false}},
          {{input({3, 5})}, SoftmaxAttrs{1, true}},
          {{input({4, 3})}, SoftmaxAttrs{0, true}}};
}

const OpDef& softmax_op() {
  static const OpDef op{.name = "softmax",
                        .rule = softmax_rule,
                        .infer = softmax_infer,
                        .forward = softmax_forward,
                        .backward = softmax_backward,
                        .saves_in = 0,
                        .samples = softmax_samples};
  return op;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim_or_zero(dim, x.ndim(), "softmax");
  return call1(softmax_op(), {x}, SoftmaxAttrs{.dim = along, .log = false});
}
Tensor log_softmax(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim_or_zero(dim, x.ndim(), "log_softmax");
  return call1(softmax_op(), {x}, SoftmaxAttrs{.dim = along, .log = true});
}

std::span<const OpDef* const> softmax_ops() {
  static const OpDef* const ops[] = {&softmax_op(), &softmax_backward_op()};
  return ops;
}

}  // namespace coshard
