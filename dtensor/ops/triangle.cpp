#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::vector<TensorInfo> triangle_infer(Infos in, const Attrs&) {
  CS_REQUIRE(in[0].shape.size() >= 2, "tril, triu need at least 2 dimensions, got ", in[0].shape);
  return {in[0]};
}

Rule triangle_rule(Infos in, const Attrs&) {
  Rule rule;
  rule.in = {axes(in[0].shape.size())};
  rule.out = rule.in;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void triangle_forward(OpContext& c) {
  const Tensor& y = c.make();
  const int n = static_cast<int>(y.local_shape().size());
  const auto a = c.attrs.as<TriangleAttrs>();
  const std::int64_t diagonal = a.diagonal + c.offset(0, n - 2) - c.offset(0, n - 1);
  launch(c, kernels::Triangle{view_of(y), view_of(c.in[0]), diagonal, a.upper});
}

Tensor triangle(const Tensor& x, std::int64_t diagonal, bool upper, CallSite site = {});

void triangle_backward(GradContext& c) {
  const auto a = c.attrs.as<TriangleAttrs>();
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, triangle(c.out_grad[0], a.diagonal, a.upper));
}

[[gnu::cold]] std::vector<OpDef::Sample> triangle_samples() {
  return {{{input({5, 4})}, TriangleAttrs{0, false}},
          {{input({2, 3, 5})}, TriangleAttrs{1, true}},
          {{input({3, 7})}, TriangleAttrs{-1, false}}};
}

const OpDef& triangle_op() {
  static const OpDef op{.name = "triangle",
                        .rule = triangle_rule,
                        .infer = triangle_infer,
                        .forward = triangle_forward,
                        .backward = triangle_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = triangle_samples};
  return op;
}

Tensor triangle(const Tensor& x, std::int64_t diagonal, bool upper, CallSite site) {
  const OperatorCall user(site);
  return call1(triangle_op(), {x}, TriangleAttrs{.diagonal = diagonal, .upper = upper});
}

}  // namespace

Tensor tril(const Tensor& x, std::int64_t diagonal, CallSite site) {
  return triangle(x, diagonal, false, site);
}
Tensor triu(const Tensor& x, std::int64_t diagonal, CallSite site) {
  return triangle(x, diagonal, true, site);
}

std::span<const OpDef* const> triangle_ops() {
  static const OpDef* const ops[] = {&triangle_op()};
  return ops;
}

}  // namespace coshard
