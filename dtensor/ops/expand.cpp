#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/writes.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::vector<TensorInfo> expand_infer(Infos in, const Attrs& attrs) {
  const Shape to = attrs.as<ExpandAttrs>().shape;
  require_size(to, size_of(in[0].dtype), "expand");
  CS_REQUIRE(broadcast(in[0].shape, to, "expand") == to, "expand: cannot expand ", in[0].shape,
             " to ", to);
  return {{to, in[0].dtype}};
}

Rule expand_rule(Infos in, const Attrs& attrs) {
  const Shape to = attrs.as<ExpandAttrs>().shape;
  Rule rule;
  rule.in = {broadcast_axes(in[0].shape, to)};
  rule.out = {axes(to.size())};
  rule.strided = true;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void expand_forward(OpContext& c) {
  const Tensor& x = c.in[0];
  const Shape& to = c.out_shape[0];
  Strides strides = Strides::filled(to.size(), 0);
  const std::size_t lead = to.size() - x.local_shape().size();
  for (std::size_t i = to.size(); i-- > 0;) {
    if (i >= lead && x.local_shape()[i - lead] == to[i]) strides[i] = x.strides()[i - lead];
    if (i < lead && to[i] == 1) strides[i] = i + 1 < to.size() ? to[i + 1] * strides[i + 1] : 1;
  }
  c.out[0] = x.view_as(to, strides, x.storage_offset(), nullptr);
  c.out[0].set_unwritable(
      "is expanded, so that several of its elements share memory; change a clone() of it");
}

void expand_backward(GradContext& c) {
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, sum_to(c.out_grad[0], c.in_info[0].shape));
}

[[gnu::cold]] std::vector<OpDef::Sample> expand_samples() {
  return {{{input({3, 1})}, ExpandAttrs{{3, 5}}},
          {{input({5})}, ExpandAttrs{{2, 3, 5}}},
          {{input({})}, ExpandAttrs{{3}}}};
}

const OpDef& expand_op() {
  static const OpDef op{.name = "expand",
                        .rule = expand_rule,
                        .infer = expand_infer,
                        .forward = expand_forward,
                        .backward = expand_backward,
                        .view = true,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = expand_samples};
  return op;
}

}  // namespace

Tensor expand(const Tensor& x, const Shape& shape, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(shape.size() >= x.shape().size(), "expand: cannot expand ", x, " to ", shape);
  const std::size_t lead = shape.size() - x.shape().size();
  Shape to = shape;
  for (std::size_t i = lead; i < to.size(); ++i)
    if (to[i] == -1) to[i] = x.shape()[i - lead];
  if (x.shape() == to) return unchanged(x);
  return call1(expand_op(), {x}, ExpandAttrs{to});
}

std::span<const OpDef* const> expand_ops() {
  static const OpDef* const ops[] = {&expand_op()};
  return ops;
}

}  // namespace coshard
