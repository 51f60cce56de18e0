#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/ops.h"

namespace coshard {
namespace {

// attrs.ints: dim, keepdim
std::vector<TensorInfo> amax_infer(Infos in, const Attrs& attrs) {
  require_floating("amax", in[0]);
  Shape out = in[0].shape;
  const auto dim = static_cast<std::size_t>(attrs.ints[0]);
  CS_REQUIRE(out[dim] > 0, "amax: dimension ", dim, " of ", out, " is empty");
  if (attrs.ints[1] == 1) {
    out[dim] = 1;
  } else {
    out.erase(dim);
  }
  return {{out, in[0].dtype}};
}

Rule amax_rule(Infos in, const Attrs& attrs) {
  Rule rule;
  rule.in = {letters(in[0].shape.size())};
  std::string out = rule.in[0];
  out.replace(static_cast<std::size_t>(attrs.ints[0]), 1, attrs.ints[1] == 1 ? "." : "");
  rule.out = {out};
  rule.contraction = Reduce::Max;
  rule.extra = {partial_strategy("P", "P", Reduce::Max)};
  return rule;
}

void amax_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  const Lines n = lines_of(x.local_shape(), static_cast<int>(c.attrs.ints[0]));
  Tensor& y = c.make();
  launch(c, kernels::ReduceDim{kernels::ReduceOp::Max, x.dtype(), n.outer, n.extent, n.inner,
                               x.data(), y.data()});
}

std::vector<OpDef::Sample> amax_samples() {
  return {{{input({3, 5})}, {{1, 0}, {}}}, {{input({2, 3, 4})}, {{1, 1}, {}}}};
}

const OpDef& amax_op() {
  static const OpDef op{.name = "amax",
                        .rule = amax_rule,
                        .infer = amax_infer,
                        .forward = amax_forward,
                        .backward = nullptr,
                        .flops = one_per_element,
                        .samples = amax_samples};
  return op;
}

}  // namespace

Tensor amax(const Tensor& x, int dim, bool keepdim) {
  const NoGradGuard no_gradient;
  return call1(amax_op(), {x}, {{normalize_dim(dim, x.ndim(), "amax"), keepdim}, {}});
}

std::span<const OpDef* const> amax_ops() {
  static const OpDef* const ops[] = {&amax_op()};
  return ops;
}

}  // namespace coshard
