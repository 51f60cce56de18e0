#include <coshard/dtensor/redistribute/redistribute.h>

#include <coshard/dtensor/tape/tape.h>
#include "dtensor/redistribute/deferred.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/gathered.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/planner.h"
#include "dtensor/redistribute/taped.h"
#include "dtensor/tape/grad_mode.h"
#include "dtensor/tensor/copied_view.h"
#include "runtime/comm/collective.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

Issued issue_now_or_later(const Tensor& source, const Layout& target, bool by_shards) {
  if (redistributes_are_deferred()) return {redistribute_later(source, target, by_shards)};
  return issue_to(source, target, by_shards);
}

// For operators that consume the shards as they arrive.
void note_gathered(const Tensor& source, const Tensor& result, bool by_shards) {
  if (!result.in_flight()) return;
  const bool unasked = source.mesh().world().communicator()->gathers_by_shards();
  if (!by_shards && !unasked) return;
  auto gathered = gathered_to(source, result.layout());
  if (!gathered) return;
  gathered->asked = by_shards && !unasked;
  result.storage()->gathered = std::make_shared<const Gathered>(*std::move(gathered));
}

// The result is on the tape, and never the source's own memory.
Issued run_taped(const Tensor& source, const Layout& target, const RedistributeOptions& options);

// x in another dtype, on the tape.
Tensor cast(const Tensor& x, DType dtype);

class CastNode final : public GradNode {
 public:
  explicit CastNode(DType from) : from_(from) {}
  std::string_view name() const override { return "to"; }
  bool records_backward() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    sink.accumulate(0, cast(output_grads[0], from_));
  }

 private:
  DType from_;
};

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = cast_local(x, dtype);
  const Tensor inputs[] = {x};
  if (taped(inputs))
    push_record(std::make_shared<CastNode>(x.dtype()), inputs, std::span<Tensor>(&out, 1));
  return out;
}

class RedistributeNode final : public GradNode {
 public:
  RedistributeNode(const Tensor& source, const RedistributeOptions& options)
      : source_(partial_as_replicate(source.layout())),
        dtype_(source.dtype()),
        backward_dtype_(options.backward_dtype.value_or(dtype_)) {}
  std::string_view name() const override { return "redistribute"; }
  bool records_backward() const override { return true; }
  const Layout* gradient_layout() const override {
    return backward_dtype_ == dtype_ ? &source_ : nullptr;
  }
  // Also a redistribute, and recorded as one if gradients of gradients are requested.
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    const Tensor& gradient = output_grads[0];
    if (!taped(output_grads)) {
      const Tensor sent = cast_local(gradient, backward_dtype_);
      const bool by_shards = is_multiplied_sooner(sent, sink);
      const Tensor back = redistribute_raw(sent, source_, by_shards);
      note_gathered(sent, back, by_shards);
      return sink.accumulate(0, cast_local(back, dtype_));
    }
    const RedistributeOptions options{backward_dtype_, gradient.dtype()};
    const Tensor back = run_taped(gradient, source_, options).result;
    sink.accumulate(0, cast(back, dtype_));
  }

 private:
  // Whether the record that reads this gradient should get it by shards.
  bool is_multiplied_sooner(const Tensor& sent, const GradSink& sink) const {
    if (backward_dtype_ != dtype_ || sent.layout() == source_) return false;
    if (sent.mesh().world().communicator()->gathers_by_shards()) return false;  // they do anyway
    const auto gathered = gathered_to(sent, source_);
    return gathered && sink.multiplies_sooner(0, *gathered);
  }

  Layout source_;
  DType dtype_, backward_dtype_;
};

Issued run_taped(const Tensor& source, const Layout& target, const RedistributeOptions& options) {
  const Tensor sent = cast_local(source, options.forward_dtype.value_or(source.dtype()));
  Issued issued = sent.layout() == target ? Issued{sent.detach()}
                                          : issue_now_or_later(sent, target, options.by_shards);
  // A slice of another's memory may have gaps on some ranks alone.
  if (issued.result.storage()->buffer == source.storage()->buffer || !issued.result.is_contiguous())
    issued.result = copy_later(issued.result);
  else
    note_gathered(sent, issued.result, options.by_shards);
  const Tensor inputs[] = {source};
  if (taped(inputs))
    push_record(std::make_shared<RedistributeNode>(source, options), inputs,
                std::span<Tensor>(&issued.result, 1));
  return issued;
}

}  // namespace

std::optional<Gathered> gathered_to(const Tensor& source, const Layout& target) {
  const Layout& from = source.layout();
  if (from.ndim() != 1 || !target[0].is_replicate()) return std::nullopt;
  for (int dim = 0; dim < source.ndim(); ++dim)
    if (from[0].is_shard(dim))
      return Gathered{make_spec(source.mesh(), target, source.shape()), dim, source.dtype()};
  return std::nullopt;
}

Tensor redistributed(const Tensor& source, Tensor result) {
  const Tensor inputs[] = {source};
  if (taped(inputs))
    push_record(std::make_shared<RedistributeNode>(source, RedistributeOptions()), inputs,
                std::span<Tensor>(&result, 1));
  return result;
}

namespace {

void check_partials(const Tensor& source, const Layout& wanted) {
  const Layout& now = source.layout();
  CS_REQUIRE(wanted.ndim() == now.ndim(), "redistribute: layout ", wanted, " has ", wanted.ndim(),
             " entries, the mesh ", source.mesh(), " has ", now.ndim(), " dimensions");
  for (int m = 0; m < now.ndim(); ++m)
    CS_REQUIRE(may_become(now[m], wanted[m]), "redistribute: ", source, " to ", wanted, ": ",
               now[m], " cannot become ", wanted[m]);
}

}  // namespace

void Redistribution::Host::Awaiter::await_resume() {
  WorkAwaiter::await_resume();
  result_.arrived(awaited());
  result_.device()->synchronize();
}

// Awaits the whole result if shards do not arrive one by one, and after the last.
Redistribution::NextShard::Awaiter::Awaiter(Redistribution of, int index)
    : WorkAwaiter(of.state_, of.part(index)), of_(std::move(of)), index_(index) {}

// Which rank's shard arrives as number `index`; -1: not separately.
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

// The whole, then empty shards, if shards do not arrive one by one.
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
  const ShardExtent cut =
      shard_extent(last_->collective.counts, last_->collective.extent, shards_, rank);
  Shape shape = result_.local_shape();
  shape[dim] = cut.size;
  const std::int64_t offset =
      result_.storage_offset() + (cut.size ? cut.offset * result_.strides()[dim] : 0);
  // A handle to the same memory that does not wait for the shards that are still in flight.
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
  catch_up_with_writes({&source, 1});
  const bool casts = options.forward_dtype || options.backward_dtype;
  const Layout wanted = normalize(target, source.shape(), "redistribute");
  if (!casts && wanted == source.layout())
    return Redistribution(grad_enabled() ? Tensor(source) : untaped(source));
  check_partials(source, wanted);
  Issued issued = run_taped(source, wanted, options);
  return Redistribution(std::move(issued.result), std::move(issued.last), issued.shards);
}

}  // namespace coshard
