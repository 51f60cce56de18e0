#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// attrs.ints: dim, whether the logarithm is wanted
std::vector<TensorInfo> softmax_infer(Infos in, const Attrs&) {
  require_floating("softmax", in[0]);
  return {in[0]};
}

// dim stays whole, in every input and the output
Rule softmax_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  std::string text = axes(in[0].shape.size());
  if (!text.empty()) text[static_cast<std::size_t>(attrs.ints[0])] = '.';
  rule.in.assign(in.size(), text);
  rule.out = {text};
  rule.strided = true;
  return rule;
}

double softmax_flops(Infos in, const Attrs& attrs) { return 5 * one_per_element(in, attrs); }

void softmax_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const Lines n = lines_of(x.local_shape(), static_cast<int>(c.attrs.ints[0]));
  Tensor& y = c.make();
  launch(c, kernels::Softmax{x.dtype(), c.attrs.ints[1] == 1, n.outer, n.extent, n.inner, x.data(),
                             y.data()});
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
  const Lines n = lines_of(y.local_shape(), static_cast<int>(c.attrs.ints[0]));
  Tensor& dx = c.make();
  launch(c, kernels::SoftmaxGrad{y.dtype(), c.attrs.ints[1] == 1, n.outer, n.extent, n.inner,
                                 dy.data(), y.data(), dx.data()});
}

const OpDef& softmax_backward_op() {
  static const OpDef op{.name = "softmax_backward",
                        .rule = softmax_backward_rule,
                        .infer = same_as_first,
                        .forward = softmax_backward_forward,
                        .backward = nullptr,
                        .flops = softmax_flops,
                        .samples = no_samples};
  return op;
}

// y (dy - sum(y dy)), or dy - exp(y) sum(dy)
Tensor differentiable_gradient(const Tensor& dy, const Tensor& y, const Attrs& attrs) {
  const int dim = static_cast<int>(attrs.ints[0]);
  if (attrs.ints[1] == 1) return sub(dy, mul(exp(y), sum(dy, dim, true)));
  return mul(y, sub(dy, sum(mul(y, dy), dim, true)));
}

void softmax_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Tensor& dy = c.out_grad[0];
  c.sink.accumulate(0, grad_enabled() ? differentiable_gradient(dy, c.out[0], c.attrs)
                                      : call1(softmax_backward_op(), {dy, c.out[0]}, c.attrs));
}

std::vector<OpDef::Sample> softmax_samples() {
  return {{{input({3, 5})}, {{1, 0}, {}}},
          {{input({2, 3, 4})}, {{1, 0}, {}}},
          {{input({3, 5})}, {{1, 1}, {}}},
          {{input({4, 3})}, {{0, 1}, {}}}};
}

const OpDef& softmax_op() {
  static const OpDef op{.name = "softmax",
                        .rule = softmax_rule,
                        .infer = softmax_infer,
                        .forward = softmax_forward,
                        .backward = softmax_backward,
                        .flops = softmax_flops,
                        .saves_in = 0,
                        .samples = softmax_samples};
  return op;
}

}  // namespace

Tensor softmax(const Tensor& x, int dim, CallSite site) {
  const UserCall user(site);
  return call1(softmax_op(), {x}, {{normalize_dim_or_zero(dim, x.ndim(), "softmax"), 0}, {}});
}
Tensor log_softmax(const Tensor& x, int dim, CallSite site) {
  const UserCall user(site);
  return call1(softmax_op(), {x}, {{normalize_dim_or_zero(dim, x.ndim(), "log_softmax"), 1}, {}});
}

std::span<const OpDef* const> softmax_ops() {
  static const OpDef* const ops[] = {&softmax_op(), &softmax_backward_op()};
  return ops;
}

}  // namespace coshard
