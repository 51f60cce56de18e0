#include "dtensor/redistribute/execute.h"

#include <functional>

#include "dtensor/redistribute/redistribute.h"
#include "kernels/run.h"

namespace coshard {
namespace {

// A collective whose result this rank still has to put in place: whoever waits does it.
class FollowUp final : public TicketState {
 public:
  FollowUp(Ticket ticket, std::function<void()> follow)
      : ticket_(std::move(ticket)), follow_(std::move(follow)) {}
  bool ready() override {
    if (follow_ && !ticket_.ready()) return false;
    wait();
    return true;
  }
  void wait() override {
    if (!follow_) return;
    ticket_.wait();
    std::exchange(follow_, nullptr)();
  }
  int parts() const override { return 1; }
  bool part_ready(int) override { return ready(); }
  void wait_part(int) override { wait(); }

 private:
  Ticket ticket_;
  std::function<void()> follow_;
};

void fill(const Tensor& x, double value) {
  kernels::run(x.device()->kind(), kernels::Fill{x.data(), x.dtype(), x.local_numel(), value});
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
    const double value = divisor;
    const Tensor scale = Tensor::from_values(place.device(), {}, place.dtype(), {&value, 1});
    kernels::View x;
    x.data = place.data();
    x.dtype = place.dtype();
    x.ndim = 1;
    x.shape[0] = place.local_numel();
    x.strides[0] = 1;
    kernels::View by = x;
    by.data = scale.data();
    by.strides[0] = 0;
    kernels::run(place.device()->kind(), kernels::Binary{kernels::BinaryOp::Div, x, x, by});
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
  const Box all{tensor.local_shape(), Shape(tensor.local_shape().size(), 0), 0, to.strides()};
  copy_out(tensor, to, {&all, 1});
  return to.with_spec(tensor.spec());
}

}  // namespace coshard
