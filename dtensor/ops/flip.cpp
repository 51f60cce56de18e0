#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

Rule flip_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  std::string text = axes(in[0].shape.size());
  for (auto dim : attrs.as<FlipAttrs>().dims) text[static_cast<std::size_t>(dim)] = '.';
  rule.in = {text};
  rule.out = {text};
  rule.strided = true;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void flip_forward(OpContext& c) {
  const Tensor& y = c.make();
  if (y.local_numel() == 0) return;
  kernels::View from = view_of(c.in[0]);
  const Shape dims = c.attrs.as<FlipAttrs>().dims;
  for (auto dim : dims) {  // from the last element backwards
    const auto d = static_cast<std::size_t>(dim);
    const std::int64_t last = (from.shape[d] - 1) * from.strides[d];
    from.data =
        static_cast<std::byte*>(from.data) + last * static_cast<std::int64_t>(size_of(from.dtype));
    from.strides[d] = -from.strides[d];
  }
  launch(c, kernels::Copy{view_of(y), from});
}

void flip_backward(GradContext& c) {
  const Shape dims = c.attrs.as<FlipAttrs>().dims;
  if (c.sink.needs_grad(0)) c.sink.accumulate(0, flip(c.out_grad[0], dims.span()));
}

[[gnu::cold]] std::vector<OpDef::Sample> flip_samples() {
  return {{{input({5, 3})}, FlipAttrs{{0}}}, {{input({2, 3, 5})}, FlipAttrs{{2, 0}}}};
}

const OpDef& flip_op() {
  static const OpDef op{.name = "flip",
                        .rule = flip_rule,
                        .infer = same_as_first,
                        .forward = flip_forward,
                        .backward = flip_backward,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = flip_samples};
  return op;
}

}  // namespace

Tensor flip(const Tensor& x, std::span<const std::int64_t> dims, CallSite site) {
  const OperatorCall user(site);
  FlipAttrs attrs;
  for (auto dim : dims) {
    const std::int64_t along = normalize_dim(dim, x.ndim(), "flip");
    CS_REQUIRE(std::find(attrs.dims.begin(), attrs.dims.end(), along) == attrs.dims.end(),
               "flip: dimension ", dim, " of ", x, " is named twice");
    attrs.dims.push_back(along);
  }
  return call1(flip_op(), {x}, attrs);
}

std::span<const OpDef* const> flip_ops() {
  static const OpDef* const ops[] = {&flip_op()};
  return ops;
}

}  // namespace coshard
