#pragma once
// What relu, silu and gelu share: y = f(x) elementwise, and dx = dy * f'(x) as an operator of its
// own, through which a Partial dy passes. Forward bodies and rules only; each activation's file
// holds its operators.
#include "dtensor/ops/letters.h"
#include "dtensor/ops/local.h"

namespace coshard {

inline std::vector<TensorInfo> activation_infer(Infos in, const Attrs&) {
  require_floating("activation", in[0]);
  return {in[0]};
}

inline void activation_forward(OpContext& c, kernels::UnaryOp f) {
  const Tensor x = local_contiguous(c.in[0]);
  Tensor& y = c.make();
  launch(c, kernels::Unary{f, x.dtype(), x.local_numel(), x.data(), y.data()});
}

// in: dy, x
inline Rule activation_grad_rule(Infos in, const Attrs& attrs) {
  Rule rule = elementwise_rule(in, attrs);
  pass_partial(rule, "PR", "P", kLinear);
  return rule;
}

inline void activation_grad_forward(OpContext& c, kernels::UnaryGradOp f) {
  const Tensor dy = local_contiguous(c.in[0]);
  const Tensor x = local_contiguous(c.in[1]);
  Tensor& dx = c.make();
  launch(c, kernels::UnaryGrad{f, x.dtype(), x.local_numel(), dy.data(), x.data(), dx.data()});
}

}  // namespace coshard
