#pragma once
// Redistribute: bring a DTensor to another layout. The call issues its collectives at once, on the
// communication stream, in program order; what it returns can be awaited, or used directly as a
// tensor in flight.
#include <coroutine>
#include <optional>

#include <coshard/dtensor/tensors.h>
#include <coshard/runtime/comm/work.h>
#include <coshard/runtime/coro/task.h>

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

// A redistribution that has been issued. Copies share one flight, which may be awaited again, also
// by siblings; dropping it is allowed: the data still arrive, since peers rely on this rank's part.
//
//   Resumes: co_await always suspends, in the queue `waiting` (static order, never by which
//            transfer finished first), and continues once the result is ordered on the device; on
//            the cpu: once the data are there. What is ready runs meanwhile.
//   Ready:   every operator on the result waits for it by itself.
//   Moves:   S->R all_gather, P->R all_reduce, P->S reduce_scatter, S(i)->S(j) all_to_all; R->S,
//            R->P and S->S nothing.
//   Source:  an in-place operator, a random fill or an optimizer that writes to it waits in place
//            until the transfer has read it. By hand (data()), or on a rank that dropped the result
//            while others have it, write after an await of the result: nothing checks that.
//   Fails:   Error{CommFailed|Timeout}; the communicator is poisoned, the source is unchanged.
//   Cancel:  the collective goes on without this await; any copy may be awaited again.
class Redistribution {
 public:
  using awaitable_of_coshard = void;
  // `last` is the step whose collective is in flight, if any.
  explicit Redistribution(Tensor result, std::shared_ptr<const Step> last = nullptr, int shards = 1)
      : result_(std::move(result)),
        state_(result_.storage()->pending.state()),
        last_(std::move(last)),
        shards_(shards) {}

  // The result, possibly in flight. Recorded on the tape.
  const Tensor& tensor() const { return result_; }

  class Awaiter;
  Awaiter operator co_await() const;
  // Until the host may read the data.
  class Host;
  Host host() const;
  // The shards of an all-gather as they arrive, this rank's own first, then rank+1, rank+2, …: a
  // static order. nullopt after the last. A result that moved nothing, or came by another
  // collective, arrives as one shard. Every rank gets the same number of shards. Where they are
  // not blocks of the result, the first is the whole and the rest are empty; outside the mesh all
  // are empty.
  class NextShard;
  NextShard next_shard();

 private:
  int part(int index) const;
  ArrivedShard shard(int index, int rank) const;

  Tensor result_;
  // Kept, so that every await waits for the same, also when the data have been used meanwhile.
  std::shared_ptr<WorkState> state_;
  std::shared_ptr<const Step> last_;
  int shards_;
  int taken_ = 0;
};

class Redistribution::Awaiter final : public WorkAwaiter {
 public:
  Awaiter(std::shared_ptr<WorkState> state, Tensor result)
      : WorkAwaiter(std::move(state)), result_(std::move(result)) {}
  Tensor await_resume() {
    WorkAwaiter::await_resume();
    result_.arrived(awaited());
    return result_;
  }

 private:
  Tensor result_;
};
inline Redistribution::Awaiter Redistribution::operator co_await() const {
  return Awaiter(state_, result_);
}

class Redistribution::Host {
 public:
  using awaitable_of_coshard = void;
  class Awaiter final : public WorkAwaiter {
   public:
    Awaiter(std::shared_ptr<WorkState> state, Tensor result)
        : WorkAwaiter(std::move(state)), result_(std::move(result)) {}
    // On a device that queues its work: polls an event with the device's deadline.
    void await_resume();

   private:
    Tensor result_;
  };
  Host(std::shared_ptr<WorkState> state, Tensor result)
      : state_(std::move(state)), result_(std::move(result)) {}
  Awaiter operator co_await() const { return Awaiter(state_, result_); }

 private:
  std::shared_ptr<WorkState> state_;
  Tensor result_;
};
inline Redistribution::Host Redistribution::host() const { return Host(state_, result_); }

class Redistribution::NextShard {
 public:
  using awaitable_of_coshard = void;
  class Awaiter final : public WorkAwaiter {
   public:
    Awaiter(Redistribution of, int index);
    std::optional<ArrivedShard> await_resume();

   private:
    Redistribution of_;
    int index_;
  };
  NextShard(Redistribution of, int index) : of_(std::move(of)), index_(index) {}
  Awaiter operator co_await() const { return Awaiter(of_, index_); }

 private:
  Redistribution of_;
  int index_;
};
inline Redistribution::NextShard Redistribution::next_shard() { return NextShard(*this, taken_++); }

// Awaits what several tensors wait for, whatever that is; suspends once.
Task<void> arrival_of(Tensors tensors);

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
                            const RedistributeOptions& options = {},
                            CallSite site = CallSite::current());

template <class... Placements>
Redistribution Tensor::redistribute(FirstPlacement first, Placements... rest) const {
  return coshard::redistribute(*this, Layout(first.placement, rest...), {}, first.site);
}

}  // namespace coshard
