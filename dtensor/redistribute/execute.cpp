#include "dtensor/redistribute/execute.h"

#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/redistribute/planner.h"
#include "dtensor/tensor/local.h"
#include "kernels/run.h"

namespace coshard {
namespace {

void fill(const Tensor& x, double value) {
  kernels::run(*x.device(), kernels::Fill{x.address(), x.dtype(), x.local_numel(), value});
}

void divide(const Tensor& place, int divisor) {
  kernels::run(
      *place.device(),
      kernels::Binary{kernels::BinaryOp::Div, view_of(place), view_of(place), {}, double(divisor)});
}

// The local work on data that this rank has received: on the CPU as part of the transfer, elsewhere
// in compute-stream order, when it is first waited for.
std::function<void()> completion(const Tensor& into, const Tensor& to, const Step& step) {
  if (!step.unpacks && step.divisor == 1) return nullptr;
  const Tensor received = place_of(into), place = place_of(to);
  // By value: the last rank to arrive may run it after this rank, with its plans, has ended.
  return [received, place, unpacks = step.unpacks, unpack = step.unpack, divisor = step.divisor] {
    if (unpacks) copy_in(received, place, unpack);
    if (divisor != 1)
      divide(Tensor::alias(place, Shape{place.local_numel()}, Strides{1}, place.storage_offset()),
             divisor);
  };
}

Tensor local_step(const Tensor& x, const Step& step) {
  const auto& after = step.after;
  // The others fill theirs once x has arrived; a copy keeps what is in flight alike on all ranks.
  if (step.kind == StepKind::ReplicateToPartial && step.keeps)
    return (x.in_flight() ? copy_later(x) : x).with_spec(after);
  if (step.kind == StepKind::Slice && step.is_view) {
    std::int64_t offset = x.storage_offset();
    for (std::size_t d = 0; d < step.begin.size(); ++d) offset += step.begin[d] * x.strides()[d];
    const Tensor view = x.view_as(after->local_shape, x.strides(), offset, after);
    // In flight separately, as the result outside the mesh is.
    return x.in_flight() ? same_in_flight(view, Work(x.storage()->pending.state())) : view;
  }
  Tensor to = Tensor::empty(x.device(), after, x.dtype());
  const bool fills = step.kind != StepKind::Slice;
  make_from(
      x, to,
      [place = place_of(to), fills, filling = step.filling, pack = step.pack](const Tensor& from) {
        if (fills) fill(place, filling);
        copy_out(from, place, pack);
      });
  return to;
}

std::int64_t bytes_of(const Step& step, DType dtype) {
  return numel(step.after->local_shape) * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

Tensor run_step(const Tensor& x, const Step& step, bool by_shards) {
  if (!communicates(step.kind)) return local_step(x, step);
  World& world = step.after->mesh.world();
  if (world.observed()) world.observer().planned(step.label, bytes_of(step, x.dtype()));
  Collective collective = step.collective;
  collective.origin = x.origin();
  collective.by_shards = by_shards && step.kind == StepKind::AllGather;
  Tensor from = x, to = Tensor::empty(x.device(), step.after, x.dtype());
  to.set_origin(collective.origin);
  to.set_marks(x.marks());
  if (step.packs) {
    from = Tensor::empty(x.device(), Shape{step.packed}, x.dtype());
    make_from(x, from, [place = place_of(from), pack = step.pack](const Tensor& source) {
      copy_out(source, place, pack);
    });
  } else if (!x.is_contiguous()) {
    from = copy_later(x);
  }
  Tensor into = step.unpacks ? Tensor::empty(x.device(), Shape{step.unpacked}, x.dtype()) : to;
  issue_through(*step.communicator, std::move(collective), from, into, to,
                completion(into, to, step));
  return to;
}

Issued run_plan(const DTensor& source, std::shared_ptr<const RedistributePlan> plan,
                bool by_shards) {
  if (plan->steps.empty()) return {source.with_spec(plan->target), nullptr};
  Issued issued{source, nullptr, plan->outline.shards};
  const Step& last = plan->steps.back();
  for (const Step& step : plan->steps)
    issued.result = run_step(issued.result, step, by_shards && &step == &last);
  if (communicates(last.kind)) issued.last = {std::move(plan), &last};
  return issued;
}

Issued issue_to(const Tensor& source, const Layout& target, bool by_shards) {
  issue_deferred(source);
  if (source.mesh().contains_this_rank())
    return run_plan(source, plan_for(source.spec(), target, source.dtype()), by_shards);
  const auto spec = make_spec(source.mesh(), target, source.shape());
  const PlanOutline outline = outline_of(source.spec(), spec->layout, source.dtype());
  Issued nothing{Tensor::empty(source.device(), spec, source.dtype()), nullptr, outline.shards};
  // If the others only do a local step, their result is in flight while the source is.
  if (outline.communicates)
    nothing.result.set_in_flight(Work());
  else
    share_pending_work(source, nothing.result);
  return nothing;
}

Tensor redistribute_raw(const DTensor& source, const Layout& target, bool by_shards) {
  if (source.layout() == target) return source;
  return issue_to(source, target, by_shards).result.detach();
}

}  // namespace coshard
