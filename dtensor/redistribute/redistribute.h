#pragma once
// Redistribute: bring a DTensor to another layout. The call issues its collectives at once, on the
// communication stream, in program order; what it returns can be awaited, or used directly as a
// tensor in flight.
#include <coroutine>
#include <optional>

#include "dtensor/tensor.h"

namespace coshard {

struct Step;

// A part of the result that has arrived: `tensor` is the view of the result's rows [offset,
// offset+size) along `dim` that rank `rank` of the mesh dimension contributed.
struct ArrivedShard {
  Tensor tensor;
  int rank = 0;
  int dim = 0;
  std::int64_t offset = 0, size = 0;
};

// A redistribution that has been issued. Move-only in spirit (copies share the state); dropping it
// is allowed: the data still arrive, since peers rely on this rank's part.
//
//   Resumes: co_await yields once to the next ready sibling of this rank (static order, never by
//   which transfer
//            finished first), then continues as soon as the result is ordered on the device; on the
//            cpu: when the data are there.
//   Ready:   every operator on the result waits for it by itself.
//   Moves:   S->R all_gather, P->R all_reduce, P->S reduce_scatter, S(i)->S(j) all_to_all; R->S,
//   R->P and S->S nothing. Fails:   Error{CommFailed|Timeout}; the communicator is poisoned, the
//   source is unchanged. Cancel:  the collective is finished by whoever waits; the result is
//   dropped.
class Redistribution {
 public:
  // `last` is the step whose collective is in flight, if any; it lives in the plan cache.
  explicit Redistribution(Tensor result, const Step* last = nullptr)
      : result_(std::move(result)), last_(last) {}

  // The result, possibly in flight. Recorded on the tape.
  const Tensor& tensor() const { return result_; }

  class Awaiter;
  Awaiter operator co_await() const;
  // Until the host may read the data.
  class HostAwaiter;
  HostAwaiter host() const;
  // The shards of an all-gather as they arrive, this rank's own first, then rank+1, rank+2, …: a
  // static order. nullopt after the last. A result that moved nothing, or came by another
  // collective, arrives as one shard.
  class ShardAwaiter;
  ShardAwaiter next_shard();

 private:
  Tensor result_;
  const Step* last_;
  int taken_ = 0;
};

// Gives the siblings their turn, as the static schedule wants it: whether it suspends depends on
// what is ready to run, never on whether the data have arrived.
class InFlightAwaiter {
 public:
  explicit InFlightAwaiter(Tensor result) : result_(std::move(result)) {}
  bool await_ready() const noexcept;
  void await_suspend(std::coroutine_handle<> handle) const;

 protected:
  Tensor result_;
};

class Redistribution::Awaiter : public InFlightAwaiter {
 public:
  using InFlightAwaiter::InFlightAwaiter;
  Tensor await_resume() const;
};

class Redistribution::HostAwaiter : public InFlightAwaiter {
 public:
  using InFlightAwaiter::InFlightAwaiter;
  // On a device that queues its work: polls an event with the device's deadline. The turn of the
  // siblings was the yield before; they do not run in between, so that the order stays static.
  void await_resume() const {
    result_.wait();
    result_.device()->synchronize();
  }
};

class Redistribution::ShardAwaiter : public InFlightAwaiter {
 public:
  ShardAwaiter(Tensor result, const Step* step, int index)
      : InFlightAwaiter(std::move(result)), step_(step), index_(index) {}
  std::optional<ArrivedShard> await_resume() const;

 private:
  const Step* step_;
  int index_;
};

inline Redistribution::Awaiter Redistribution::operator co_await() const {
  return Awaiter(result_);
}
inline Redistribution::HostAwaiter Redistribution::host() const { return HostAwaiter(result_); }
inline Redistribution::ShardAwaiter Redistribution::next_shard() {
  return ShardAwaiter(result_, last_, taken_++);
}

struct RedistributeOptions {
  // The local tensor is cast, then sent; the result has this dtype.
  std::optional<DType> forward_dtype = std::nullopt;
  // So is the gradient, which then returns to the source's dtype; default: the source's.
  std::optional<DType> backward_dtype = std::nullopt;
};

// The public entry: twice differentiable, and refuses what has no meaning. Any layout to any other,
// uneven and strided shards included, except that only a shard becomes Partial, P(sum), at no cost:
// each rank puts its part into zeros. Collectives: at most one where no Partial is reduced;
// reductions of a kind come as one over several mesh dimensions, the inner first where their order
// matters. The same layout: the source itself. Error{BadInput}: a plain tensor; entries that do not
// match the mesh or the tensor; anything else that would become Partial. Gradient: a redistribute
// back to the source layout, Partial read as Replicate (PyTorch A57).
Redistribution redistribute(const DTensor& source, const Layout& target,
                            const RedistributeOptions& options = {});

// What operators use: no tape, and Replicate -> Partial is allowed (each rank keeps its share).
Tensor redistribute_raw(const DTensor& source, const Layout& target);

// Issues `collective` (geometry and label) from one row-major tensor into another, or in place:
// waits for `from`, keeps both buffers until it is over on every rank, and leaves `to` in flight.
void issue_into(Communicator& communicator, Collective collective, const Tensor& from,
                const Tensor& to);

// A sum (average, …) of what every rank has, in its place and in flight.
void issue_all_reduce(Communicator& communicator, Reduce reduce, const Tensor& terms,
                      std::string_view label);

// Rank `source` of mesh dimension m sends `whole` to all of that dimension: a new tensor, in
// flight.
Tensor broadcast_along(const Tensor& whole, const DeviceMesh& mesh, int m, int source,
                       std::string_view label);

template <class... Placements>
Redistribution Tensor::redistribute(Placement first, Placements... rest) const {
  return coshard::redistribute(*this, Layout(first, rest...));
}

}  // namespace coshard
