#include "dtensor/redistribute/execute.h"

#include "dtensor/ops/local.h"
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/issue.h"
#include "kernels/run.h"

namespace coshard {
namespace {

void fill(const Tensor& x, double value) {
  kernels::run(*x.device(), kernels::Fill{x.data(), x.dtype(), x.local_numel(), value});
}

// Whether what is in flight can be continued by any thread, once it is there.
bool continues(const Tensor& x) {
  issue_deferred(x);
  return x.in_flight() && x.device()->kind() == DeviceKind::Cpu &&
         (!x.storage()->pending || x.storage()->pending.state()->any_thread());
}

void divide(const Tensor& place, int divisor) {
  kernels::run(
      *place.device(),
      kernels::Binary{kernels::BinaryOp::Div, view_of(place), view_of(place), {}, double(divisor)});
}

// What this rank does with what it has received: on the cpu a part of the job, elsewhere in the
// order of the compute stream, when it is first waited for.
std::function<void()> completion(const Tensor& into, const Tensor& to, const Step& step) {
  if (!step.unpacks && step.divisor == 1) return nullptr;
  const Tensor received = place_of(into), place = place_of(to);
  // By value: the last to come may do it when this rank has ended, and its plans with it.
  return [received, place, unpacks = step.unpacks, unpack = step.unpack, divisor = step.divisor] {
    if (unpacks) copy_in(received, place, unpack);
    if (divisor != 1)
      divide(Tensor::alias(place, Shape{place.local_numel()}, Strides{1}, place.storage_offset()),
             divisor);
  };
}

Tensor local_step(const Tensor& x, const Step& step) {
  const auto& after = step.after;
  // The others make theirs once x is there: what is in flight is the same on every rank.
  if (step.kind == StepKind::Share && step.keeps)
    return (x.in_flight() ? copy_later(x) : x).with_spec(after);
  if (step.kind == StepKind::Slice && step.is_view) {
    std::int64_t offset = x.storage_offset();
    for (std::size_t d = 0; d < step.begin.size(); ++d) offset += step.begin[d] * x.strides()[d];
    const Tensor view = x.view_as(after->local_shape, x.strides(), offset, after);
    // Outside the mesh, too, the result is in flight by itself.
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

Tensor same_in_flight(const Tensor& x, Work work) {
  Tensor same = place_of(x);
  same.set_in_flight(std::move(work));
  return std::move(same).with_spec(x.spec());
}

void fly_with(const Tensor& from, const Tensor& to) {
  if (from.in_flight()) to.set_in_flight(Work(from.storage()->pending.state()));
}

void issue_deferred(const Tensor& x) {
  if (x.in_flight() && x.storage()->pending) x.storage()->pending.state()->issue_now();
}

Tensor place_of(const Tensor& x) {
  return Tensor::alias(x, x.local_shape(), x.strides(), x.storage_offset());
}

Tensor run_step(const Tensor& x, const Step& step) {
  if (!communicates(step.kind)) return local_step(x, step);
  World& world = step.after->mesh.world();
  if (world.observed()) world.observer().planned(step.label, bytes_of(step, x.dtype()));
  Collective collective = step.collective;
  Tensor from = x, to = Tensor::empty(x.device(), step.after, x.dtype());
  if (step.packs) {
    from = Tensor::empty(x.device(), Shape{step.packed}, x.dtype());
    make_from(x, from, [place = place_of(from), pack = step.pack](const Tensor& source) {
      copy_out(source, place, pack);
    });
  } else if (!x.is_contiguous()) {
    from = copy_later(x);
  }
  Tensor into = step.unpacks ? Tensor::empty(x.device(), Shape{step.unpacked}, x.dtype()) : to;
  std::function<void()> complete = completion(into, to, step);
  const bool queued = x.device()->kind() != DeviceKind::Cpu;
  if (!queued) collective.complete = complete;
  issue_into(*step.communicator, std::move(collective), from, into);
  if (into.storage() != to.storage() || (queued && complete)) {
    std::shared_ptr<WorkState> received = into.storage()->pending.state();
    into.arrived(received);
    if (queued) received = std::make_shared<FollowUp>(std::move(received), std::move(complete));
    to.set_in_flight(Work(std::move(received)));
  }
  return to;
}

void chain(Collective& collective, const Tensor& from) {
  if (continues(from))
    collective.after = from.storage()->pending.state();
  else
    from.wait();
}

void make_from(const Tensor& from, const Tensor& to, std::function<void(const Tensor& from)> make) {
  if (!continues(from)) {
    from.wait();
    return make(from);
  }
  to.set_in_flight(Work(std::make_shared<FollowUp>(
      from.storage()->pending.state(),
      [place = place_of(from), make = std::move(make)] { make(place); })));
  from.read_by(to.storage()->pending);
}

Tensor copy_later(const Tensor& tensor) {
  Tensor to = Tensor::empty(tensor.device(), tensor.local_shape(), tensor.dtype());
  make_from(tensor, to, [place = place_of(to)](const Tensor& from) {
    kernels::run(*place.device(), kernels::Copy{view_of(place), view_of(from)});
  });
  return tensor.is_distributed() ? std::move(to).with_spec(tensor.spec()) : to;
}

Issued run_plan(const DTensor& source, std::shared_ptr<const RedistributePlan> plan) {
  if (plan->steps.empty()) return {source.with_spec(plan->target), nullptr};
  Issued issued{source, nullptr, plan->outline.shards};
  for (const Step& step : plan->steps) issued.result = run_step(issued.result, step);
  const Step& last = plan->steps.back();
  if (communicates(last.kind)) issued.last = {std::move(plan), &last};
  return issued;
}

Tensor cast_local(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor to = Tensor::empty(tensor.device(), tensor.local_shape(), dtype);
  make_from(tensor, to, [place = place_of(to)](const Tensor& from) {
    kernels::run(*place.device(), kernels::Copy{view_of(place), view_of(from)});
  });
  return std::move(to).with_spec(tensor.spec());
}

}  // namespace coshard
