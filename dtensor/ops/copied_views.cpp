#include "dtensor/ops/copied_views.h"

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/ops/computing_sink.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/writes.h"
#include "dtensor/tape/grad_mode.h"

namespace coshard {
namespace {

// The gradient that an operator gives to its only input.
class OneGradient final : public ComputingSink {
 public:
  bool needs_grad(int) const override { return true; }
  void accumulate(int, Tensor gradient) override { gradient_ = std::move(gradient); }
  void defer(int, std::function<Tensor()> compute) override { gradient_ = compute(); }
  void arrive(const std::shared_ptr<GradMeta>&, Tensor) override {}
  void hold(std::uint64_t, std::shared_ptr<void>) override {}
  const Tensor& gradient() const { return gradient_; }

 private:
  Tensor gradient_;
};

// y where the view's elements are in what it is a view of, and 0 elsewhere.
Tensor spread(const OperatorView& view, const Tensor& y) {
  const Tensor none;
  const TensorInfo info{view.of.shape(), y.dtype()};
  OneGradient sink;
  GradContext context{{&none, 1}, {&none, 1}, {&y, 1}, view.attrs, sink, {&info, 1}};
  view.op->backward(context);
  return sink.gradient();
}

OperatorView& operator_view(const Tensor& x) {
  return static_cast<OperatorView&>(*x.copied_view());
}

Tensor whole_copy(const Tensor& x) {
  const Tensor base = x.base();
  return base.defined() ? base : x;
}

const std::shared_ptr<GradMeta>& history_of(const Tensor& x) {
  x.requires_grad();  // brings a view up to date
  return x.grad_meta();
}

// A rank that makes a view again alone is told from the others at their next collective.
void note_made_again(const DTensor& of) {
  for (int m = 0; of.mesh().contains_this_rank() && m < of.mesh().ndim(); ++m)
    of.mesh().note(m,
                   {"made a view again after a write to a tensor of",
                    "elements (a write through to_local() belongs on all ranks), along dimension",
                    static_cast<std::uint64_t>(of.numel()), static_cast<std::uint64_t>(m)});
}

}  // namespace

void OperatorView::make_again(const Tensor& x) {
  OperatorView& view = *this;
  if (const Tensor taped = view.detached_from.lock(); taped.defined()) {
    if (!view.is_behind()) return know_renewal(x);
    taped.copied_view()->make_again(taped);
    for (const Tensor& t : {x, whole_copy(x)})
      if (!t.grad_meta()) t.set_current();  // what was written has a gradient, but not here
    return;
  }
  const bool passes_by = view.passes_by && grad_enabled();
  if (!view.taped && !view.detached && grad_enabled()) {
    CS_REQUIRE(!view.may_be_itself || !view.of.requires_grad(), x,
               " was made by contiguous() under a NoGradGuard, from ", view.of,
               ", which it is if strides allow it that from_local was not told; give it `stride`, "
               "or call contiguous() again");
    CS_REQUIRE(view.taped_write == view.last_taped_write(), x,
               ": it is a view that was made under a NoGradGuard, and ", view.of,
               " was changed in place on the tape since; take the view again");
  }
  if (!view.is_behind() && !passes_by) return;
  CS_REQUIRE(!view.unsure, x, ": ", view.of,
             ", which it was made from, was changed in place since, "
             "and whether that changes this depends on strides that from_local was not told; give "
             "it `stride`, or take the view again");
  if (view.of.copied_view()) view.of.copied_view()->make_again(view.of);
  const Tensor copy = whole_copy(x);
  copy.wait("view");
  copy.wait_for_readers("view");
  note_made_again(view.of);
  const std::uint32_t taped_write = copy.storage()->buffer->taped_write;
  const RecordGuard as_when_made;
  const bool recorded = view.taped && view.history == history_of(view.of);
  const Tensor of = view.taped && !recorded ? view.of : view.of.detach();
  const Tensor now = call1(*view.op, {of}, view.attrs);
  view.memory->seen = view.of.storage()->changes();
  view.passes_by = false;
  store(copy, now, "view");
  if (recorded) return;
  if (!now.requires_grad()) record_constant_write(copy);
  if (view.taped) view.history = view.of.grad_meta();
  view.memory->renewed_at = view.writes();
  view.memory->renewed_from = taped_write;
  view.memory->renewed_to = copy.storage()->buffer->taped_write;
}

void know_renewal(const Tensor& x) {
  const CopiedView& view = *x.copied_view();
  const CopiedView::Memory& memory = *view.memory;
  if (view.taken != memory.renewed_at || x.storage()->buffer->taped_write != memory.renewed_to ||
      !view.detached_from.lock().defined())
    return;
  for (const Tensor& t : {x, whole_copy(x)})
    if (t.known_write() == memory.renewed_from) t.set_current();
}

bool will_require_grad(const Tensor& x) {
  const CopiedView& view = *x.copied_view();
  return view.taped && view.of.requires_grad();
}

void view_as_detached(const Tensor& x, const Tensor& detached) {
  const Tensor copy = x.base();
  if (copy.defined()) return detached.set_base(copy.detach());
  const OperatorView& view = operator_view(x);
  const Tensor first = view.detached_from.lock();
  const Tensor::Weak from(first.defined() ? first : x);
  const auto own = std::make_shared<OperatorView>(view.of.detach(), false, *view.op, view.attrs);
  own->unsure = view.unsure;
  own->detached = true;
  own->memory = view.memory;
  own->detached_from = from;
  detached.set_copied_view(own);
}

void write_back(const Tensor& x) {
  if (!x.copied_view()) return;
  OperatorView& view = operator_view(x);
  const Tensor copy = whole_copy(x);
  const Tensor written = spread(view, copy);
  const Tensor is_written = to(spread(view, full_like(copy, 1)), DType::Bool);
  const Tensor value = where(is_written, written, view.of);
  store(view.of, value, "view");
  write_back(view.of);
  view.memory->seen = view.of.storage()->changes();
  view.passes_by = view.taped && grad_enabled() && view.of.requires_grad();
}

}  // namespace coshard
