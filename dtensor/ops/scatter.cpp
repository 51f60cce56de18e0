#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// (x, index, src or nothing)
bool scatter_has_source(std::size_t inputs) { return inputs == 3; }

std::vector<TensorInfo> scatter_infer(Infos in, const Attrs& attrs) {
  const Shape& x = in[0].shape;
  const Shape& index = in[1].shape;
  CS_REQUIRE(in[1].dtype == DType::I64 || in[1].dtype == DType::I32,
             "scatter: index must be i64 or i32, got ", in[1].dtype);
  CS_REQUIRE(x.size() == index.size(), "scatter: index ", index,
             " must have as many dimensions as ", x);
  const int dim = attrs.as<ScatterAttrs>().dim;
  for (std::size_t d = 0; d < x.size(); ++d)
    CS_REQUIRE(static_cast<int>(d) == dim || index[d] <= x[d], "scatter: index ", index,
               " is larger than ", x, " outside dimension ", dim);
  if (scatter_has_source(in.size())) {
    require_same_dtype("scatter", in[0], in[2]);
    CS_REQUIRE(in[2].shape == index, "scatter: shapes differ: src ", in[2].shape, " and index ",
               index);
  }
  return {in[0]};
}

// A Partial x stays Partial where every rank writes its own share of the new values.
void scatter_pass_partial(Rule& rule, std::size_t inputs, const Attrs& attrs) {
  if (scatter_has_source(inputs)) return pass_partial(rule, "PRP", "P", kMoving);
  pass_partial(rule, "PR", "P", std::array{Reduce::Avg, Reduce::Min, Reduce::Max});
  if (attrs.as<ScatterAttrs>().value == 0) pass_partial(rule, "PR", "P", std::array{Reduce::Sum});
}

Rule scatter_rule(Infos in, const Attrs& attrs) {
  const Shape& x = in[0].shape;
  Rule rule;
  std::string text = axes(x.size());
  const int dim = attrs.as<ScatterAttrs>().dim;
  for (std::size_t d = 0; d < x.size(); ++d)
    if (static_cast<int>(d) == dim || x[d] != in[1].shape[d]) text[d] = '.';
  rule.in.assign(in.size(), text);
  rule.out = {text};
  rule.strided = true;
  scatter_pass_partial(rule, in.size(), attrs);
  return rule;
}

void scatter_forward(OpContext& c) {
  const Tensor& y = c.make();
  const kernels::View out = view_of(y);
  launch(c, kernels::Copy{out, view_of(c.in[0])});
  const bool source = scatter_has_source(c.in.size());
  const auto a = c.attrs.as<ScatterAttrs>();
  launch(c, kernels::Scatter{out, source ? view_of(c.in[2]) : kernels::View{}, view_of(c.in[1]),
                             a.dim, false, a.value});
}

void scatter_backward(GradContext& c) {
  const int dim = c.attrs.as<ScatterAttrs>().dim;
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, scatter(c.out_grad[0], dim, c.in[1], 0.0));
  if (scatter_has_source(c.in_info.size()) && c.sink.needs_grad(2))
    c.sink.accumulate(2, gather(c.out_grad[0], dim, c.in[1]));
}

[[gnu::cold]] std::vector<OpDef::Sample> scatter_samples() {
  const TensorInfo index = input({4, 5}, DType::I64);
  return {{{input({3, 5}), index}, ScatterAttrs{0, 0}, -2, 2, 3},
          {{input({3, 5}), index}, ScatterAttrs{0, 1.5}, -2, 2, 3},
          {{input({3, 5}), index, input({4, 5})}, ScatterAttrs{0}, -2, 2, 3, {0}},
          {{input({3, 4}), input({2, 1}, DType::I64), input({2, 1})}, ScatterAttrs{1}}};
}

const OpDef& scatter_op() {
  static const OpDef op{.name = "scatter",
                        .rule = scatter_rule,
                        .infer = scatter_infer,
                        .forward = scatter_forward,
                        .backward = scatter_backward,
                        .saves_in = 2,
                        .saves_out = 0,
                        .samples = scatter_samples};
  return op;
}

}  // namespace

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& src, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "scatter");
  return call1(scatter_op(), {x, index, cropped(src, index.shape(), -1)}, ScatterAttrs{along});
}

Tensor scatter(const Tensor& x, int dim, const Tensor& index, double value, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "scatter");
  require_fits(value, x.dtype(), "scatter");
  return call1(scatter_op(), {x, index}, ScatterAttrs{.dim = along, .value = value});
}

std::span<const OpDef* const> scatter_ops() {
  static const OpDef* const ops[] = {&scatter_op()};
  return ops;
}

}  // namespace coshard
