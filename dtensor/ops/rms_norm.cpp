#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// in: x, weight; out: y, rstd
std::vector<TensorInfo> rms_norm_infer(Infos in, const Attrs& attrs) {
  const Shape& x = in[0].shape;
  require_floating("rms_norm", in[0]);
  const auto first = x.end() - attrs.as<RmsNormAttrs>().dims;
  if (in[1].defined) {
    require_same_dtype("rms_norm", in[0], in[1]);
    CS_REQUIRE(in[1].shape == Shape(first, x.end()), "rms_norm: weight ", in[1].shape,
               " does not match x ", x);
  }
  return {in[0], {Shape(x.begin(), first), statistic_dtype(in[0].dtype)}};
}

// Rows may be sharded; normalized dimensions must be whole.
Rule rms_norm_rule(Infos in, const Attrs& attrs) {
  const auto count = static_cast<std::size_t>(attrs.as<RmsNormAttrs>().dims);
  const std::string rows = axes(in[0].shape.size() - count);
  const std::string whole(count, '.');
  Rule rule;
  rule.in = {rows + whole, in[1].defined ? whole : ""};
  rule.out = {rows + whole, rows};
  rule.strided = true;
  return rule;
}

void rms_norm_forward(OpContext& c) {
  const auto a = c.attrs.as<RmsNormAttrs>();
  const Tensor x = matrix_rows(c.in[0], a.dims);
  const Tensor weight = c.in[1].defined() ? local_contiguous(c.in[1]) : Tensor();
  const Shape& n = x.local_shape();
  launch(c, kernels::RmsNorm{x.dtype(), n[0], n[1], a.eps, x.const_data(), data_or_null(weight),
                             c.make(0).address(), c.make(1).address()});
}

struct RmsNormBackwardAttrs {
  int dims;
  bool dweight;  // whether it is requested
};

// in: dy, x, weight, rstd; out: dx, dweight
std::vector<TensorInfo> rms_norm_backward_infer(Infos in, const Attrs& attrs) {
  std::vector<TensorInfo> out{in[1]};
  const Shape& x = in[1].shape;
  const auto a = attrs.as<RmsNormBackwardAttrs>();
  if (a.dweight) out.push_back({Shape(x.end() - a.dims, x.end()), in[1].dtype});
  return out;
}

Rule rms_norm_backward_rule(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<RmsNormBackwardAttrs>();
  const auto count = static_cast<std::size_t>(a.dims);
  const std::string rows = axes(in[1].shape.size() - count);
  const std::string whole(count, '.');
  Rule rule;
  rule.in = {rows + whole, rows + whole, in[2].defined ? whole : "", rows};
  rule.out = {rows + whole};
  if (a.dweight) rule.out.push_back(whole);
  rule.strided = true;
  pass_partial(rule, "PRRR", std::string(rule.out.size(), 'P'), kLinear);
  return rule;
}

void rms_norm_backward_forward(OpContext& c) {
  const auto a = c.attrs.as<RmsNormBackwardAttrs>();
  const Tensor dy = matrix_rows(c.in[0], a.dims);
  const Tensor x = matrix_rows(c.in[1], a.dims);
  const Tensor weight = c.in[2].defined() ? local_contiguous(c.in[2]) : Tensor();
  const Tensor rstd = local_contiguous(c.in[3]);
  void* dx = c.make(0).address();
  void* dweight = a.dweight ? c.make(1).address() : nullptr;
  const Shape& n = x.local_shape();
  launch(c, kernels::RmsNormGrad{x.dtype(), n[0], n[1], dy.const_data(), x.const_data(),
                                 data_or_null(weight), rstd.const_data(), dx, dweight});
}

const OpDef& rms_norm_backward_op() {
  static const OpDef op{.name = "rms_norm_backward",
                        .rule = rms_norm_backward_rule,
                        .infer = rms_norm_backward_infer,
                        .forward = rms_norm_backward_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

void rms_norm_backward(GradContext& c) {
  const bool weight = c.sink.needs_grad(1);
  const Tensor in[] = {c.out_grad[0], c.in[0], c.in[1], c.out[1]};
  const int dims = c.attrs.as<RmsNormAttrs>().dims;
  const auto grads = call(rms_norm_backward_op(), in, RmsNormBackwardAttrs{dims, weight});
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, grads[0]);
  if (weight) c.sink.accumulate(1, grads[1]);
}

[[gnu::cold]] std::vector<OpDef::Sample> rms_norm_samples() {
  return {{{input({3, 5}), input({5})}, RmsNormAttrs{1, 1e-6}},
          {{input({2, 3, 5}), input({5})}, RmsNormAttrs{1, 1e-6}},
          {{input({3, 2, 3}), input({2, 3})}, RmsNormAttrs{2, 1e-6}},
          {{input({3, 4}), absent()}, RmsNormAttrs{1, 1e-6}}};
}

const OpDef& rms_norm_op() {
  static const OpDef op{.name = "rms_norm",
                        .rule = rms_norm_rule,
                        .infer = rms_norm_infer,
                        .forward = rms_norm_forward,
                        .backward = rms_norm_backward,
                        .saves_out = 0b10,
                        .samples = rms_norm_samples};
  return op;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(x.ndim() > 0, "rms_norm: x has no dimensions");
  return call1(rms_norm_op(), {x, weight}, RmsNormAttrs{.dims = 1, .eps = eps});
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, double eps,
                CallSite site) {
  const OperatorCall user(site);
  const int count = normalized_dims("rms_norm", x, normalized_shape);
  return call1(rms_norm_op(), {x, weight}, RmsNormAttrs{.dims = count, .eps = eps});
}

std::span<const OpDef* const> rms_norm_ops() {
  static const OpDef* const ops[] = {&rms_norm_op(), &rms_norm_backward_op()};
  return ops;
}

}  // namespace coshard
