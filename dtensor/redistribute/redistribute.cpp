#include <coshard/dtensor/redistribute/redistribute.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape.h>
#include "dtensor/ops/local.h"
#include "dtensor/redistribute/deferred.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/redistribute/transition.h"
#include "dtensor/writes.h"
#include "runtime/comm/collective.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// A rank outside the mesh has nothing and issues nothing.
Issued issue_to(const Tensor& source, const Layout& target) {
  issue_deferred(source);
  if (source.mesh().contains_this_rank()) return run_plan(source, plan_for(source.spec(), target));
  const auto spec = make_spec(source.mesh(), target, source.shape());
  const PlanOutline outline = outline_of(source.spec(), spec->layout);
  Issued nothing{Tensor::empty(source.device(), spec, source.dtype()), nullptr, outline.shards};
  // Where the others only do a local step, what they wait for is what the source waits for.
  if (outline.communicates)
    nothing.result.set_in_flight(Work());
  else
    fly_with(source, nothing.result);
  return nothing;
}

Issued issue_now_or_later(const Tensor& source, const Layout& target) {
  if (redistributes_are_deferred()) return {redistribute_later(source, target)};
  return issue_to(source, target);
}

// The result of a redistribute as the tape sees it: never the source's own memory.
struct Taped {
  Tensor result;
  std::shared_ptr<const Step> last;
  int shards;
};
Taped run_taped(const Tensor& source, const Layout& target, const RedistributeOptions& options);

class RedistributeRecord final : public Record {
 public:
  RedistributeRecord(const Tensor& source, const RedistributeOptions& options)
      : source_(partial_as_replicate(source.layout())),
        dtype_(source.dtype()),
        backward_dtype_(options.backward_dtype.value_or(dtype_)) {}
  std::string_view name() const override { return "redistribute"; }
  bool records_backward() const override { return true; }
  // Itself a redistribute, and recorded like one where gradients of gradients are wanted.
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    const Tensor& gradient = output_grads[0];
    if (!taped(output_grads)) {
      const Tensor sent = cast_local(gradient, backward_dtype_);
      return sink.give(0, cast_local(redistribute_raw(sent, source_), dtype_));
    }
    const RedistributeOptions options{backward_dtype_, gradient.dtype()};
    const Tensor back = run_taped(gradient, source_, options).result;
    sink.give(0, back.dtype() == dtype_ ? back : to(back, dtype_));
  }

 private:
  Layout source_;
  DType dtype_, backward_dtype_;
};

Taped run_taped(const Tensor& source, const Layout& target, const RedistributeOptions& options) {
  const Tensor sent = cast_local(source, options.forward_dtype.value_or(source.dtype()));
  Issued issued =
      sent.layout() == target ? Issued{sent.detach()} : issue_now_or_later(sent, target);
  if (issued.result.storage()->buffer == source.storage()->buffer)
    issued.result = copy_later(issued.result);
  const Tensor inputs[] = {source};
  if (taped(inputs))
    push_record(std::make_shared<RedistributeRecord>(source, options), inputs,
                std::span<Tensor>(&issued.result, 1));
  return {std::move(issued.result), std::move(issued.last), issued.shards};
}

void check_partials(const Tensor& source, const Layout& wanted) {
  const Layout& now = source.layout();
  CS_REQUIRE(wanted.ndim() == now.ndim(), "redistribute: layout ", wanted, " has ", wanted.ndim(),
             " entries, the mesh ", source.mesh(), " has ", now.ndim(), " dimensions");
  for (int m = 0; m < now.ndim(); ++m)
    CS_REQUIRE(may_become(now[m], wanted[m]), "redistribute: ", source, " to ", wanted, ": ",
               now[m], " cannot become ", wanted[m]);
}

}  // namespace

void issue_into(Communicator& communicator, Collective collective, const Tensor& from,
                const Tensor& to) {
  collective.dtype = from.dtype();
  chain(collective, from);
  collective.send = from.address();
  collective.recv = to.address();
  collective.keep_send = from.storage()->buffer;
  collective.keep_recv = to.storage()->buffer;
  to.set_in_flight(communicator.issue(std::move(collective)));
  if (from.storage()->buffer != to.storage()->buffer) from.read_by(to.storage()->pending);
}

void issue_all_reduce(Communicator& communicator, Reduce reduce, const Tensor& terms,
                      std::string_view label) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.reduce = reduce;
  c.extent = terms.local_numel();
  c.label = label;
  issue_into(communicator, c, terms, terms);
}

Tensor broadcast_along(const Tensor& whole, const DeviceMesh& mesh, int m, int source,
                       std::string_view label) {
  const Tensor from = local_contiguous(whole);
  const Tensor out = Tensor::empty(from.device(), from.local_shape(), from.dtype());
  Collective c;
  c.kind = CollectiveKind::Broadcast;
  c.root = source;
  c.extent = from.local_numel();
  c.label = label;
  issue_into(mesh.communicator(m), c, from, out);
  return out;
}

void Redistribution::Host::Awaiter::await_resume() {
  WorkAwaiter::await_resume();
  result_.arrived(awaited());
  result_.device()->synchronize();
}

// By whole when the shards do not come one by one, and after the last.
Redistribution::NextShard::Awaiter::Awaiter(Redistribution of, int index)
    : WorkAwaiter(of.state_, of.part(index)), of_(std::move(of)), index_(index) {}

// Which rank's shard comes as number `index`; -1: it does not come alone.
int Redistribution::part(int index) const {
  if (last_ == nullptr || last_->gathered < 0 || index >= shards_) return -1;
  return (last_->communicator->rank() + index) % shards_;
}

std::optional<ArrivedShard> Redistribution::NextShard::Awaiter::await_resume() {
  WorkAwaiter::await_resume();
  const int rank = of_.part(index_);
  if (rank < 0) of_.result_.arrived(awaited());
  if (index_ >= of_.shards_) return std::nullopt;
  return of_.shard(index_, rank);
}

// The whole, then nothing, where the shards do not come one by one.
ArrivedShard Redistribution::shard(int index, int rank) const {
  const Tensor whole = result_.raw_local();
  if (rank < 0 && index == 0)
    return {whole, 0, 0, 0, whole.local_shape().empty() ? 1 : whole.local_shape()[0]};
  if (rank < 0) {
    Shape none = whole.local_shape();
    if (!none.empty()) none[0] = 0;
    return {Tensor::empty(whole.device(), none, whole.dtype()), index, 0, 0, 0};
  }
  const auto dim = static_cast<std::size_t>(last_->gathered);
  const Cut cut = cut_of(last_->collective.counts, last_->collective.extent, shards_, rank);
  Shape shape = result_.local_shape();
  shape[dim] = cut.size;
  const std::int64_t offset =
      result_.storage_offset() + (cut.size ? cut.offset * result_.strides()[dim] : 0);
  // A handle to the same memory that does not wait for the shards that are still travelling.
  const Tensor view = Tensor::alias(result_, shape, result_.strides(), offset);
  return {view, rank, last_->gathered, cut.offset, cut.size};
}

Task<void> arrival_of(Tensors tensors) {
  std::erase_if(tensors, [](const Tensor& t) { return !t.defined() || !t.in_flight(); });
  WorkStates states;
  for (const Tensor& t : tensors) states.push_back(t.storage()->pending.state());
  WorkAwaiter all(states);
  co_await all;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].arrived(states[i]);
}

Redistribution redistribute(const DTensor& source, const Layout& target,
                            const RedistributeOptions& options, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(source.defined() && source.is_distributed(), "redistribute: ", source,
             " is a plain tensor; from_local makes it a DTensor");
  const bool casts = options.forward_dtype || options.backward_dtype;
  const Layout wanted = normalize(target, source.shape(), "redistribute");
  if (!casts && wanted == source.layout()) return Redistribution(unchanged(source));
  check_partials(source, wanted);
  Taped taken = run_taped(source, wanted, options);
  return Redistribution(std::move(taken.result), std::move(taken.last), taken.shards);
}

Tensor redistribute_raw(const DTensor& source, const Layout& target) {
  if (source.layout() == target) return source;
  return issue_to(source, target).result.detach();
}

}  // namespace coshard
