#include <coshard/dtensor/ops/pointwise.h>

#include <cmath>

#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/op_call.h"
#include "dtensor/ops/pointwise_forward.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

void pass_partial_as(Rule& rule, std::size_t at, Reduce in, Reduce out) {
  Strategy strategy{std::vector<Placement>(rule.in.size(), Replicate()),
                    std::vector<Placement>(rule.out.size(), Partial(out))};
  strategy.in[at] = Partial(in);
  rule.extra.push_back(std::move(strategy));
}

}  // namespace

void pass_one(Rule& rule, std::size_t at, Pass pass) {
  switch (pass) {
    case Pass::Nothing: return;
    case Pass::Linear: pass_partial_as(rule, at, Reduce::Sum, Reduce::Sum); [[fallthrough]];
    case Pass::Affine: return pass_partial_as(rule, at, Reduce::Avg, Reduce::Avg);
    case Pass::MonotoneIncreasing:
      pass_partial_as(rule, at, Reduce::Max, Reduce::Max);
      return pass_partial_as(rule, at, Reduce::Min, Reduce::Min);
    case Pass::MonotoneDecreasing:
      pass_partial_as(rule, at, Reduce::Max, Reduce::Min);
      return pass_partial_as(rule, at, Reduce::Min, Reduce::Max);
  }
}

void pass_scaled(Rule& rule, std::size_t at, double factor) {
  if (!std::isfinite(factor)) return;
  pass_one(rule, at, Pass::Linear);
  pass_one(rule, at, factor >= 0 ? Pass::MonotoneIncreasing : Pass::MonotoneDecreasing);
}

Tensor call_untaped(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs) {
  const NoGradGuard no_gradient;
  return call1(op, in, attrs);
}

Tensor call_into(const OpDef& op, const Tensor& x, DType type, const Attrs& attrs) {
  CS_REQUIRE(can_store(type, x.dtype()), name_in_place(op), ": ", x, " cannot store a result of ",
             type);
  const Tensor in[] = {x};
  return call_in_place(op, in, attrs);
}
Tensor call_into(const OpDef& op, const Tensor& x, const Tensor& y, DType type,
                 const Attrs& attrs) {
  CS_REQUIRE(can_store(type, x.dtype()), name_in_place(op), ": ", x, " cannot store a result of ",
             type);
  const Tensor in[] = {x, to(y, x.dtype())};
  return call_in_place(op, in, attrs);
}

std::vector<TensorInfo> broadcast_infer(std::string_view op, Infos in) {
  const std::string name(called_or(op));
  Shape shape = in[0].shape;
  for (const TensorInfo& x : in.subspan(1)) {
    require_same_dtype(name, in[0], x);
    shape = broadcast(shape, x.shape, name.c_str());
  }
  return {{shape, in[0].dtype}};
}

}  // namespace coshard
