// In-place operators: compute, bring the result to the destination's layout and dtype, copy it in,
// and let the destination stand for the result on the tape.
#include "dtensor/ops/local.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/ops.h"
#include "dtensor/redistribute/redistribute.h"
#include "dtensor/step_graph.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

void require_destination(const OpDef& op, const Tensor& x) {
  CS_REQUIRE(x.defined(), op.name, "_: the first input is undefined");
  CS_REQUIRE(!grad_enabled() || !x.requires_grad() || !x.is_leaf(), op.name, "_: ", x,
             " is a leaf that requires a gradient");
}

// The same values in other memory, in x's place on the tape: what the operator may save.
Tensor in_other_memory(const Tensor& x) {
  Tensor copy = copy_of(x);
  copy.set_grad_meta(x.grad_meta());
  copy.storage()->changes() = x.storage()->changes();  // x may have been changed before
  return copy;
}

// The values in another layout; what cannot become Partial at once is made whole along that mesh
// dimension first, and shared.
DTensor in_layout(const OpDef& op, const DTensor& values, const Layout& layout) {
  Layout between = layout;
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_partial() && !(values.layout()[m] == layout[m])) between[m] = Replicate();
  const WithinOperator within(op.name);
  return redistribute_raw(redistribute_raw(values, between), layout);
}

}  // namespace

Tensor call_in_place(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs) {
  const Tensor& x = in[0];
  require_destination(op, x);
  std::vector<Tensor> inputs(in.begin(), in.end());
  const bool tape = taped(in);
  if (tape) inputs[0] = in_other_memory(x);
  Tensor result = std::move(call_keeping_layout(op, inputs, attrs)[0]);
  CS_REQUIRE(result.shape() == x.shape(), op.name, "_: the result ", result, " does not fit ", x);
  CS_REQUIRE(is_floating(x.dtype()) || !is_floating(result.dtype()), op.name, "_: the result ",
             result, " is floating, ", x, " is not");
  if (result.dtype() != x.dtype()) result = to(result, x.dtype());
  const Tensor data = x.is_distributed() ? in_layout(op, result, x.layout()) : result;
  if (x.local_numel() > 0) kernels::run(*x.device(), kernels::Copy{view_of(x), view_of(data)});
  count_write(x);
  if (tape && result.requires_grad()) replace_on_tape(x, result);
  return x;
}

}  // namespace coshard
