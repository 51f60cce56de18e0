#pragma once
// redistribute: changes the layout of a DTensor. The call issues its collectives at once, in
// program order, on the communication stream. Its result can be awaited, or used directly as a
// tensor in flight.
#include <coroutine>
#include <optional>

#include <coshard/dtensor/tensor/tensors.h>
#include <coshard/runtime/comm/work.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

struct Step;

// A shard of the result that has arrived: `tensor` is a view of the result's rows [offset,
// offset+size) along `dim`, contributed by rank `rank` of the mesh dimension.
struct ArrivedShard {
  Tensor tensor;
  int rank = 0;
  int dim = 0;
  std::int64_t offset = 0, size = 0;
};

// A redistribution that has been issued. Copies share one transfer and may be awaited any number of
// times, by siblings too. Dropping all copies is allowed: the transfer completes anyway, because
// peers need this rank's part.
//
//   Resumes: co_await always suspends, in the queue `waiting`: in program order, never in order of
//            completion. It continues once the result is ordered on the device (on the CPU: once
//            the data have arrived). Coroutines that are ready run meanwhile.
//   Ready:   an operator on a result in flight waits for it in place.
//   Moves:   S -> R        all_gather
//            P -> R        all_reduce
//            P -> S        reduce_scatter
//            S(i) -> S(j)  all_to_all
//            R -> S, S -> P(sum), S -> S on the same dim: nothing
//   Source:  in-place operators, random fills, optimizers and data() wait in place until the
//            transfer has read it. Unchecked, and safe only after an await of the result: writing
//            through a pointer got earlier, or on a rank that dropped the result which others keep.
//   Fails:   Error{CommFailed} or Error{Timeout}; the communicator is poisoned, the source is
//            unchanged.
//   Cancel:  cancels this await only: the collective completes, and any copy can be awaited again.
class Redistribution {
 public:
  using awaitable_of_coshard = void;
  // `last`: the step whose collective is in flight, or null.
  explicit Redistribution(Tensor result, std::shared_ptr<const Step> last = nullptr, int shards = 1)
      : result_(std::move(result)),
        state_(result_.storage()->pending.state()),
        last_(std::move(last)),
        shards_(shards) {}

  // The result, possibly in flight. On the tape.
  const Tensor& tensor() const { return result_; }

  class Awaiter;
  Awaiter operator co_await() const;
  // Resumes once the host may read the data.
  class Host;
  Host host() const;
  // The shards of an all_gather as they arrive: this rank's own first, then rank+1, rank+2, …, a
  // static order; nullopt after the last. Every rank gets the same number of shards. A result that
  // moved nothing, or came from another collective, arrives as one shard. If the shards are not
  // contiguous blocks of the result, the first one is the whole result and the others are empty.
  // Outside the mesh all are empty.
  class NextShard;
  NextShard next_shard();

 private:
  int part(int index) const;
  ArrivedShard shard(int index, int rank) const;

  Tensor result_;
  // Kept so that every await waits for the same collective, even if the data have been used since.
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
    // On a device with streams: polls an event, up to the device's deadline.
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

// Awaits whatever fills the tensors; suspends once.
Task<void> arrival_of(Tensors tensors);

template <class T>
requires std::is_same_v<T, Tensor>
struct NotAwaitable<T> {
  static_assert(!std::is_same_v<T, T>,
                "co_await: a Tensor is used without it; await x.redistribute(...), or "
                "arrival_of({x}) until its data are here");
};

struct RedistributeOptions {
  // The local tensor is cast before it is sent; the result has this dtype.
  std::optional<DType> forward_dtype = std::nullopt;
  // The gradient is cast likewise, then cast back to the source's dtype. Default: the source's
  // dtype.
  std::optional<DType> backward_dtype = std::nullopt;
  // Asks that the shards of an all_gather arrive one by one (Collective::by_shards): for a result
  // that is read by next_shard() or by overlapped_linear. multiplies_sooner (dtensor/ops/overlap.h)
  // says whether that is faster. Equal on all ranks. Without effect where they do so anyway
  // (Communicator::gathers_by_shards) or the last step is another collective.
  bool by_shards = false;
};

// Redistributes to any layout, uneven and strided shards included; twice differentiable. A target
// may be Partial only where the source is already that Partial, or is a shard and the target
// P(sum): then each rank puts its shard into zeros, without communication. The same layout returns
// the source itself.
//   Moves:    the steps that take the least time by the prices of runtime/cost/link.h for the mesh's
//             links, through layouts whose StridedShards match shards on inner mesh dimensions, and
//             those of source and target; where links are equally fast and no Partial is reduced,
//             rarely more than one collective.
//             Reductions are done the inner mesh dimension first where order matters. The order of
//             a sum, and so its last bits, depends on the links that the mesh was given.
//   Gradient: redistributed back to the source's layout, with Partial read as Replicate (as in
//             PyTorch's DTensor).
//   Fails:    Error{BadInput}: a plain tensor; a layout that does not fit the mesh or the tensor;
//             any other target that is Partial.
Redistribution redistribute(const DTensor& source, const Layout& target,
                            const RedistributeOptions& options = {},
                            CallSite site = CallSite::current());

template <class... Placements>
Redistribution Tensor::redistribute(FirstPlacement first, Placements... rest) const {
  return coshard::redistribute(*this, Layout(first.placement, rest...), {}, first.site);
}

}  // namespace coshard
#pragma GCC visibility pop
