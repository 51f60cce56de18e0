#pragma once
// Forwards of the elementwise operators, and calls of them off the tape and in place.
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/pointwise.h>
#include <coshard/dtensor/tensor/promotion.h>
#include "dtensor/ops/local.h"

namespace coshard {

// Off the tape, for functions without a gradient.
Tensor call_untaped(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs = {});

// op(x, y) into x, computed in x's dtype. Error{BadInput} if x cannot hold `type`, the dtype of the
// out-of-place result; otherwise see call_in_place.
Tensor call_into(const OpDef& op, const Tensor& x, DType type, const Attrs& attrs);
Tensor call_into(const OpDef& op, const Tensor& x, const Tensor& y, DType type,
                 const Attrs& attrs = {});

// The parameters of the kernel.
template <kernels::UnaryOp f>
std::array<double, 2> unary_parameters(const Attrs& attrs) {
  using kernels::UnaryOp;
  if constexpr (f == UnaryOp::Clamp) {
    const auto bounds = attrs.as<ClampAttrs>();
    return {bounds.min, bounds.max};
  } else if constexpr (f == UnaryOp::LeakyRelu) {
    return {attrs.as<LeakyReluAttrs>().slope, 0};
  } else if constexpr (f == UnaryOp::AddScalar || f == UnaryOp::MulScalar ||
                       f == UnaryOp::PowScalar) {
    return {attrs.as<ScalarAttrs>().value, 0};
  } else {
    return {0, 0};
  }
}

template <kernels::UnaryOp f>
void unary_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  Tensor& y = c.make();
  const auto [alpha, beta] = unary_parameters<f>(c.attrs);
  launch(c,
         kernels::Unary{f, x.dtype(), x.local_numel(), x.const_data(), y.address(), alpha, beta});
}

// Of two tensors, the second times alpha, or of one and alpha.
template <kernels::BinaryOp f>
void launch_binary(OpContext& c, double alpha) {
  const Shape& shape = c.out_shape[0];
  kernels::Binary args{f, view_of(c.make()), broadcast_view(c.in[0], shape), {}};
  if (c.in.size() > 1) args.b = broadcast_view(c.in[1], shape);
  args.alpha = alpha;
  launch(c, args);
}
template <kernels::BinaryOp f>
void binary_forward(OpContext& c) {
  launch_binary<f>(c, 1);
}
template <kernels::BinaryOp f>
void scalar_forward(OpContext& c) {
  launch_binary<f>(c, c.attrs.as<ScalarAttrs>().value);
}

}  // namespace coshard
