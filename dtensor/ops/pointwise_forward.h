#pragma once
// Forward bodies of the operators that work element by element, and calls of them outside the tape
// and in place.
#include <coshard/dtensor/ops/pointwise.h>
#include <coshard/dtensor/ops/promotion.h>
#include "dtensor/ops/local.h"

namespace coshard {

// Outside the tape, for functions without a gradient.
Tensor call_untaped(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs = {});

// op(x, y) into x, computed in x's dtype. Error{BadInput} where x cannot store `type`, the dtype
// that the operator gives out of place; for the rest see call_in_place.
Tensor call_into(const OpDef& op, const Tensor& x, DType type, const Attrs& attrs);
Tensor call_into(const OpDef& op, const Tensor& x, const Tensor& y, DType type,
                 const Attrs& attrs = {});

// attrs.reals: alpha and beta of the kernel
template <kernels::UnaryOp f>
void unary_forward(OpContext& c) {
  const Tensor x = local_contiguous(c.in[0]);
  Tensor& y = c.make();
  const auto& reals = c.attrs.reals;
  launch(c, kernels::Unary{f, x.dtype(), x.local_numel(), x.data(), y.data(),
                           reals.size() > 0 ? reals[0] : 0, reals.size() > 1 ? reals[1] : 0});
}

// Two tensors, or one and the number attrs.reals[0]; of two tensors attrs.reals[0] (1 when missing)
// scales the second.
template <kernels::BinaryOp f>
void binary_forward(OpContext& c) {
  const Shape& shape = c.out_shape[0];
  kernels::Binary args{f, view_of(c.make()), broadcast_view(c.in[0], shape), {}};
  if (c.in.size() > 1) args.b = broadcast_view(c.in[1], shape);
  if (!c.attrs.reals.empty()) args.alpha = c.attrs.reals[0];
  launch(c, args);
}

}  // namespace coshard
