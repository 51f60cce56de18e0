// In-place operators: compute, convert the result to the destination's layout and dtype, copy it
// in unless it was computed there, and give the destination the result's place on the tape.
#include <algorithm>

#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/op_call.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/ops/writes.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/tape/marks.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// A copy of x, in x's place on the tape, that the operator may save.
Tensor in_other_memory(const Tensor& x) {
  Tensor copy = copy_of(x);
  if (x.requires_grad()) copy.set_grad_meta(x.grad_meta());
  return copy;
}

// Copies the inputs that the operator saves and whose memory is about to be written.
void move_saved(const OpDef& op, std::vector<Tensor>& inputs) {
  const std::shared_ptr<Buffer> written = inputs[0].storage()->buffer;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && inputs[i].storage()->buffer == written &&
        (op.saves_in >> std::min<std::size_t>(i, 31) & 1U))
      inputs[i] = in_other_memory(inputs[i]);
}

// The values in x's layout; where they cannot become Partial directly, they go through Replicate
// along that mesh dimension.
DTensor in_layout(std::string_view who, const DTensor& values, const DTensor& x) {
  const Layout& layout = x.layout();
  Layout between = layout;
  for (int m = 0; m < layout.ndim(); ++m) {
    if (!layout[m].is_partial() || values.layout()[m] == layout[m]) continue;
    CS_REQUIRE(layout[m].reduce != Reduce::Product, who, ": ", x,
               ": cannot write new values to a P(product); redistribute it first");
    between[m] = Replicate();
  }
  const WithinOperator within("write");
  return redistribute_raw(redistribute_raw(values, between), layout);
}

}  // namespace

std::string name_in_place(const OpDef& op) {
  const std::string_view called = called_or({});
  return called.empty() ? str_cat(op.name, '_') : std::string(called);
}

void store(const Tensor& x, const Tensor& value, std::string_view who) {
  const Tensor data = x.is_distributed() ? in_layout(who, value, x) : value;
  if (x.local_numel() > 0 && !is_same_view(data, x))
    kernels::run(*x.device(), kernels::Copy{view_of(x), view_of(data)});
  const std::uint64_t marks = value.marks();  // x may be the value, and a write clears its own
  x.mark_written();
  add_marks(x, marks);
  if (grad_enabled() && value.requires_grad()) record_write(x, value);
}

Tensor call_in_place(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs) {
  const Tensor& x = in[0];
  const std::string who = name_in_place(op);
  require_may_write(x, who);
  if (x.in_flight() && write_later(op, in, attrs, who)) return x;
  require_writable(x, who);
  std::vector<Tensor> inputs(in.begin(), in.end());
  if (taped(in)) move_saved(op, inputs);
  Tensor result = std::move(call_over_first(op, inputs, attrs)[0]);
  require_result_fits(x, result.shape(), result.dtype(), who);
  if (result.dtype() != x.dtype()) result = to(result, x.dtype());
  store(x, result, who);
  write_back(x);
  return x;
}

}  // namespace coshard
