#include "dtensor/redistribute/redistribute.h"

#include "dtensor/redistribute/plan.h"
#include "dtensor/tape.h"
#include "kernels/run.h"
#include "runtime/coro/executor.h"

namespace coshard {
namespace {

Tensor contiguous_local(const Tensor& local) {
  return local.is_contiguous() ? local : copy_of(local);
}

// R -> S: this rank's rows, a view of the replica.
Tensor slice_step(const Tensor& x, const Step& step) {
  const auto& after = step.after;
  if (x.local_shape() == after->local_shape) return x.with_spec(after);
  const auto dim = static_cast<std::size_t>(step.to.dim);
  const Chunk chunk = chunk_of(x.local_shape()[dim], after->mesh.size(step.mesh_dim),
                               after->mesh.local_rank(step.mesh_dim));
  const std::int64_t offset =
      x.storage_offset() + (chunk.size ? chunk.offset * x.strides()[dim] : 0);
  return x.view_as(after->local_shape, x.strides(), offset, after);
}

// R -> P: the first rank keeps the value of a sum, the others hold 0, so that the reduction is
// exact; an average, minimum or maximum of equal values is the value itself.
Tensor share_step(const Tensor& x, const Step& step) {
  const bool kept =
      step.to.reduce != Reduce::Sum || step.after->mesh.local_rank(step.mesh_dim) == 0;
  if (kept) return x.with_spec(step.after);
  Tensor zero = Tensor::empty(x.device(), step.after, x.dtype());
  kernels::run(zero.device()->kind(),
               kernels::Fill{zero.data(), zero.dtype(), zero.local_numel(), 0.0});
  return zero;
}

std::int64_t bytes_of(const Step& step, DType dtype) {
  return numel(step.after->local_shape) * static_cast<std::int64_t>(size_of(dtype));
}

Tensor run_step(const Tensor& x, const Step& step) {
  if (step.kind == StepKind::Slice) return slice_step(x, step);
  if (step.kind == StepKind::Share) return share_step(x, step);
  World& world = step.after->mesh.world();
  if (world.observed()) world.observer().planned(step.label, bytes_of(step, x.dtype()));
  const Tensor from = contiguous_local(x);
  Tensor to = Tensor::empty(x.device(), step.after, x.dtype());
  issue_into(step.after->mesh.communicator(step.mesh_dim), step.collective, from, to);
  return to;
}

struct Issued {
  Tensor result;
  const Step* last = nullptr;
};

Issued run_plan(const DTensor& source, const RedistributePlan& plan) {
  if (plan.steps.empty()) return {source.with_spec(plan.target), nullptr};
  Issued issued{source, nullptr};
  for (const Step& step : plan.steps) {
    issued.result = run_step(issued.result, step);
    issued.last = issued.result.in_flight() ? &step : nullptr;
  }
  return issued;
}

// A rank outside the mesh has nothing and issues nothing.
Issued issue_to(const Tensor& source, const Layout& target) {
  if (source.mesh().contains_this_rank()) return run_plan(source, plan_for(source.spec(), target));
  return {Tensor::empty(source.device(), make_spec(source.mesh(), target, source.shape()),
                        source.dtype()),
          nullptr};
}

class RedistributeRecord final : public Record {
 public:
  explicit RedistributeRecord(const Layout& source) : source_(partial_as_replicate(source)) {}
  std::string_view name() const override { return "redistribute"; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    sink.give(0, redistribute_raw(output_grads[0], source_));
  }

 private:
  Layout source_;
};

}  // namespace

void issue_into(Communicator& communicator, Collective collective, const Tensor& from,
                const Tensor& to) {
  collective.dtype = from.dtype();
  collective.send = from.data();
  collective.recv = to.data();
  collective.keep_send = from.storage()->buffer;
  collective.keep_recv = to.storage()->buffer;
  to.storage()->pending = communicator.issue(collective);
}

bool InFlightAwaiter::await_ready() const noexcept {
  return !result_.in_flight() || !Executor::current() || yield().await_ready();
}

void InFlightAwaiter::await_suspend(std::coroutine_handle<> handle) const {
  Executor::current()->enqueue(handle);
}

Tensor Redistribution::Awaiter::await_resume() const {
  // On the cpu the order of the compute stream is the order of the host.
  if (result_.device()->kind() == DeviceKind::Cpu) result_.wait();
  return result_;
}

std::optional<ArrivedShard> Redistribution::ShardAwaiter::await_resume() const {
  if (!step_ || step_->kind != StepKind::AllGather) {
    if (index_ > 0) return std::nullopt;
    result_.wait();
    return ArrivedShard{result_.raw_local(), 0, 0, 0,
                        result_.local_shape().empty() ? 1 : result_.local_shape()[0]};
  }
  const DeviceMesh& mesh = step_->after->mesh;
  const int n = mesh.size(step_->mesh_dim);
  if (index_ >= n) {
    result_.wait();
    return std::nullopt;
  }
  const int rank = (mesh.local_rank(step_->mesh_dim) + index_) % n;
  if (result_.in_flight()) result_.storage()->pending.state()->wait_part(rank);
  const int dim = step_->from.dim;
  Shape shape = result_.local_shape();
  const Chunk chunk = chunk_of(shape[static_cast<std::size_t>(dim)], n, rank);
  shape[static_cast<std::size_t>(dim)] = chunk.size;
  const std::int64_t offset =
      result_.storage_offset() +
      (chunk.size ? chunk.offset * result_.strides()[static_cast<std::size_t>(dim)] : 0);
  // A handle to the same memory that does not wait for the shards that are still travelling.
  const Tensor view = Tensor::alias(result_, shape, result_.strides(), offset);
  return ArrivedShard{view, rank, dim, chunk.offset, chunk.size};
}

Redistribution redistribute(const DTensor& source, const Layout& target) {
  CS_REQUIRE(source.defined() && source.is_distributed(), "redistribute: ", source,
             " is a plain tensor; from_local makes it a DTensor");
  const Layout wanted = normalize(target, source.shape(), "redistribute");
  const Layout& now = source.layout();
  if (wanted == now) return Redistribution(source);
  for (int m = 0; m < std::min(wanted.ndim(), now.ndim()); ++m)
    CS_REQUIRE(!wanted[m].is_partial() || wanted[m] == now[m], "redistribute: ", source, " to ",
               wanted, ": ", now[m], " cannot become ", wanted[m]);
  Issued issued = issue_to(source, wanted);
  // A slice or a share of the source must not alias it.
  if (issued.result.storage() == source.storage()) issued.result = copy_of(issued.result);
  const Tensor inputs[] = {source};
  if (taped(inputs))
    push_record(std::make_shared<RedistributeRecord>(now), inputs,
                std::span<Tensor>(&issued.result, 1));
  return Redistribution(issued.result, issued.last);
}

Tensor redistribute_raw(const DTensor& source, const Layout& target) {
  if (source.layout() == target) return source;
  return issue_to(source, target).result.detach();
}

}  // namespace coshard
