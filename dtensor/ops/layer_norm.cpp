#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// in: x, weight, bias; out: y, mean, rstd
std::vector<TensorInfo> layer_norm_infer(Infos in, const Attrs& attrs) {
  const Shape& x = in[0].shape;
  require_floating("layer_norm", in[0]);
  const auto first = x.end() - attrs.as<LayerNormAttrs>().dims;
  for (const TensorInfo& w : in.subspan(1)) {
    if (!w.defined) continue;
    require_same_dtype("layer_norm", in[0], w);
    CS_REQUIRE(w.shape == Shape(first, x.end()), "layer_norm: weight or bias ", w.shape,
               " does not match x ", x);
  }
  const Shape rows(x.begin(), first);
  const DType statistic = statistic_dtype(in[0].dtype);
  return {in[0], {rows, statistic}, {rows, statistic}};
}

// Rows may be sharded; normalized dimensions must be whole.
Rule layer_norm_rule(Infos in, const Attrs& attrs) {
  const auto count = static_cast<std::size_t>(attrs.as<LayerNormAttrs>().dims);
  const std::string rows = axes(in[0].shape.size() - count);
  const std::string whole(count, '.');
  Rule rule;
  rule.in = {rows + whole, in[1].defined ? whole : "", in[2].defined ? whole : ""};
  rule.out = {rows + whole, rows, rows};
  rule.strided = true;
  return rule;
}

void layer_norm_forward(OpContext& c) {
  const auto a = c.attrs.as<LayerNormAttrs>();
  const Tensor x = matrix_rows(c.in[0], a.dims);
  const Tensor weight = c.in[1].defined() ? local_contiguous(c.in[1]) : Tensor();
  const Tensor bias = c.in[2].defined() ? local_contiguous(c.in[2]) : Tensor();
  const Shape& n = x.local_shape();
  launch(c, kernels::LayerNorm{x.dtype(), n[0], n[1], a.eps, x.const_data(), data_or_null(weight),
                               data_or_null(bias), c.make(0).address(), c.make(1).address(),
                               c.make(2).address()});
}

struct LayerNormBackwardAttrs {
  int dims;
  bool dweight, dbias;  // whether they are requested
};

// in: dy, x, weight, mean, rstd; out: dx, and dweight and dbias if requested
std::vector<TensorInfo> layer_norm_backward_infer(Infos in, const Attrs& attrs) {
  std::vector<TensorInfo> out{in[1]};
  const Shape& x = in[1].shape;
  const auto a = attrs.as<LayerNormBackwardAttrs>();
  const TensorInfo weight{Shape(x.end() - a.dims, x.end()), in[1].dtype};
  if (a.dweight) out.push_back(weight);
  if (a.dbias) out.push_back(weight);
  return out;
}

Rule layer_norm_backward_rule(Infos in, const Attrs& attrs) {
  const auto a = attrs.as<LayerNormBackwardAttrs>();
  const auto count = static_cast<std::size_t>(a.dims);
  const std::string rows = axes(in[1].shape.size() - count);
  const std::string whole(count, '.');
  Rule rule;
  rule.in = {rows + whole, rows + whole, in[2].defined ? whole : "", rows, rows};
  rule.out = {rows + whole};
  if (a.dweight) rule.out.push_back(whole);
  if (a.dbias) rule.out.push_back(whole);
  rule.strided = true;
  pass_partial(rule, "PRRRR", std::string(rule.out.size(), 'P'), kLinear);
  return rule;
}

void layer_norm_backward_forward(OpContext& c) {
  const auto a = c.attrs.as<LayerNormBackwardAttrs>();
  const Tensor dy = matrix_rows(c.in[0], a.dims);
  const Tensor x = matrix_rows(c.in[1], a.dims);
  const Tensor weight = c.in[2].defined() ? local_contiguous(c.in[2]) : Tensor();
  const Tensor mean = local_contiguous(c.in[3]);
  const Tensor rstd = local_contiguous(c.in[4]);
  void* dx = c.make(0).address();
  void* dweight = a.dweight ? c.make(1).address() : nullptr;
  void* dbias = a.dbias ? c.make(a.dweight ? 2 : 1).address() : nullptr;
  const Shape& n = x.local_shape();
  launch(c, kernels::LayerNormGrad{x.dtype(), n[0], n[1], dy.const_data(), x.const_data(),
                                   data_or_null(weight), mean.const_data(), rstd.const_data(), dx,
                                   dweight, dbias});
}

const OpDef& layer_norm_backward_op() {
  static const OpDef op{.name = "layer_norm_backward",
                        .rule = layer_norm_backward_rule,
                        .infer = layer_norm_backward_infer,
                        .forward = layer_norm_backward_forward,
                        .backward = nullptr,
                        .samples = no_samples};
  return op;
}

void layer_norm_backward(GradContext& c) {
  const bool weight = c.sink.needs_grad(1);
  const bool bias = c.sink.needs_grad(2);
  const Tensor in[] = {c.out_grad[0], c.in[0], c.in[1], c.out[1], c.out[2]};
  const int dims = c.attrs.as<LayerNormAttrs>().dims;
  const auto grads = call(layer_norm_backward_op(), in, LayerNormBackwardAttrs{dims, weight, bias});
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, grads[0]);
  if (weight) c.sink.accumulate(1, grads[1]);
  if (bias) c.sink.accumulate(2, grads[weight ? 2 : 1]);
}

[[gnu::cold]] std::vector<OpDef::Sample> layer_norm_samples() {
  return {{{input({3, 5}), input({5}), input({5})}, LayerNormAttrs{1, 1e-5}},
          {{input({2, 3, 5}), input({5}), absent()}, LayerNormAttrs{1, 1e-5}},
          {{input({3, 2, 3}), input({2, 3}), input({2, 3})}, LayerNormAttrs{2, 1e-5}},
          {{input({3, 4}), absent(), absent()}, LayerNormAttrs{1, 1e-5}}};
}

const OpDef& layer_norm_op() {
  static const OpDef op{.name = "layer_norm",
                        .rule = layer_norm_rule,
                        .infer = layer_norm_infer,
                        .forward = layer_norm_forward,
                        .backward = layer_norm_backward,
                        .saves_in = 0b011,
                        .saves_out = 0b110,
                        .samples = layer_norm_samples};
  return op;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(x.ndim() > 0, "layer_norm: x has no dimensions");
  return call1(layer_norm_op(), {x, weight, bias}, LayerNormAttrs{.dims = 1, .eps = eps});
}

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps, CallSite site) {
  const OperatorCall user(site);
  const int count = normalized_dims("layer_norm", x, normalized_shape);
  return call1(layer_norm_op(), {x, weight, bias}, LayerNormAttrs{.dims = count, .eps = eps});
}

std::span<const OpDef* const> layer_norm_ops() {
  static const OpDef* const ops[] = {&layer_norm_op(), &layer_norm_backward_op()};
  return ops;
}

}  // namespace coshard
