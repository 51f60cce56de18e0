#include "dtensor/redistribute/execute.h"

#include "dtensor/ops/local.h"
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/redistribute.h"
#include "kernels/run.h"

namespace coshard {
namespace {

void fill(const Tensor& x, double value) {
  kernels::run(*x.device(), kernels::Fill{x.data(), x.dtype(), x.local_numel(), value});
}

// Once `from` is there, its blocks go to `to`, whose owner waits for both.
void unpack_later(const Tensor& from, const Tensor& to, const Step& step) {
  const Ticket ticket = std::exchange(from.storage()->pending, {});
  const Tensor place = Tensor::alias(to, to.local_shape(), to.strides(), to.storage_offset());
  to.storage()->pending = Ticket(std::make_shared<FollowUp>(
      ticket, [from, place, &step] { copy_in(from, place, step.unpack); }));
}

// A sum that stands for averages is divided once it is there.
void divide_later(const Tensor& to, int divisor) {
  const Ticket ticket = std::exchange(to.storage()->pending, {});
  const Tensor place = Tensor::alias(to, Shape{to.local_numel()}, Strides{1}, to.storage_offset());
  to.storage()->pending = Ticket(std::make_shared<FollowUp>(ticket, [place, divisor] {
    kernels::run(*place.device(),
                 kernels::Binary{
                     kernels::BinaryOp::Div, view_of(place), view_of(place), {}, double(divisor)});
  }));
}

Tensor local_step(const Tensor& x, const Step& step) {
  const auto& after = step.after;
  if (step.kind == StepKind::Share && step.keeps) return x.with_spec(after);
  if (step.kind == StepKind::Slice && step.is_view) {
    std::int64_t offset = x.storage_offset();
    for (std::size_t d = 0; d < step.begin.size(); ++d) offset += step.begin[d] * x.strides()[d];
    return x.view_as(after->local_shape, x.strides(), offset, after);
  }
  Tensor to = Tensor::empty(x.device(), after, x.dtype());
  if (step.kind != StepKind::Slice) fill(to, step.filling);
  copy_out(x, to, step.pack);
  return to;
}

std::int64_t bytes_of(const Step& step, DType dtype) {
  return numel(step.after->local_shape) * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

Tensor run_step(const Tensor& x, const Step& step) {
  if (!communicates(step.kind)) return local_step(x, step);
  World& world = step.after->mesh.world();
  if (world.observed()) world.observer().planned(step.label, bytes_of(step, x.dtype()));
  Tensor from = x, to = Tensor::empty(x.device(), step.after, x.dtype());
  if (step.packs) {
    from = Tensor::empty(x.device(), Shape{step.packed}, x.dtype());
    copy_out(x, from, step.pack);
  } else if (!x.is_contiguous()) {
    from = copy_of(x);
  }
  Tensor into = step.unpacks ? Tensor::empty(x.device(), Shape{step.unpacked}, x.dtype()) : to;
  issue_into(*step.communicator, step.collective, from, into);
  if (step.unpacks) unpack_later(into, to, step);
  if (step.divisor != 1) divide_later(to, step.divisor);
  return to;
}

Issued run_plan(const DTensor& source, const RedistributePlan& plan) {
  if (plan.steps.empty()) return {source.with_spec(plan.target), nullptr};
  Issued issued{source, nullptr};
  for (const Step& step : plan.steps) {
    issued.result = run_step(issued.result, step);
    issued.last = issued.result.in_flight() ? &step : nullptr;
  }
  return issued;
}

Tensor cast_local(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor to = Tensor::empty(tensor.device(), tensor.local_shape(), dtype);
  kernels::run(*to.device(), kernels::Copy{view_of(to), view_of(tensor)});
  return to.with_spec(tensor.spec());
}

}  // namespace coshard
