#pragma once
// A communicator joins some ranks: all of a world, or those along a mesh dimension. Collectives are
// issued in program order by the rank's thread and are in flight until their Work is awaited.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/comm/work.h>
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/dtype.h>
#include <coshard/runtime/observer.h>
#include <coshard/runtime/reduce.h>

namespace coshard {

// How many positions of the cut dimension each rank has. Shared and immutable, so that a cached
// plan hands it out without an allocation.
using Counts = std::shared_ptr<const std::vector<std::int64_t>>;

// What a rank has done on its own (Communicator::note); "": nothing yet.
struct Noted {
  std::string_view what = "", of_what = "";  // static texts: what, value, of what, of
  std::uint64_t value = 0, of = 0;
};
// All that was noted, in whatever order, and the last of it.
struct Notes {
  void add(const Noted& done);  // in a branch without order: nothing
  std::uint64_t sum = 0;
  Noted last;
};

// What one rank asks of a collective. The tensor is seen as [outer, cut, inner]; the cut dimension
// is split over the ranks by `counts` (positions, prefix sums give the offsets; null: equal parts
// of `extent`, which must divide). Buffers are contiguous; `send` may equal `recv` for all_reduce
// and broadcast.
//
//   AllReduce      send, recv [outer*extent*inner]
//   AllGather      send [outer, counts[rank], inner]   recv [outer, sum(counts), inner]
//   ReduceScatter  send [outer, sum(counts), inner]    recv [outer, counts[rank], inner]
//   Scatter        send (root only) [outer, sum, inner] recv [outer, counts[rank], inner]
//   Broadcast      send (root only), recv [outer*extent*inner]
//   Send / Recv    [outer*extent*inner], `root` is the peer
//   AllToAll       Shard(a) -> Shard(b): the tensor is [outer, a, middle, b, inner], or
//                  [outer, b, middle, a, inner] when gather_first is false. `counts` cuts a,
//                  `scatter_counts` cuts b. send has a cut and b whole, recv a whole and b cut.
//                  With `send_counts`/`recv_counts`: element counts per peer, blocks back to back
//                  (MPI_Alltoallv).
struct Collective {
  CollectiveKind kind = CollectiveKind::Barrier;
  DType dtype = DType::F32;
  Reduce reduce = Reduce::Sum;
  bool gather_first = true;
  int root = 0;  // communicator rank; the peer of Send and Recv
  const void* send = nullptr;
  void* recv = nullptr;
  std::int64_t outer = 1, extent = 0, middle = 1, inner = 1;
  std::int64_t scatter_extent = 0;
  Counts counts, scatter_counts;
  Counts send_counts, recv_counts;
  // Ranks compare what they call, and nothing is moved: a work handle of it is over when all have
  // come. What a back end that moves data by other means issues on its control communicator.
  bool announced = false;
  bool unobserved = false;  // a check of the library's own, of which observers are not told
  // Kept alive until the collective is over on every rank, or in the order of the compute stream.
  std::shared_ptr<Buffer> keep_send, keep_recv;
  std::string_view label = "";  // static or interned text
  CallSite where = {};          // what error messages name; unknown: where issue() is called
  // Set by issue(): what else they can say of the place.
  std::string_view operation = "", module = "";
  // On the cpu: the transfer begins once `after` (whose any_thread() holds) is over, and `complete`
  // follows it on this rank's side, on any thread. Null: nothing.
  std::shared_ptr<WorkState> after;
  std::function<void()> complete;
  // Set by issue(): the sum over what this rank has noted here, and the last of it.
  std::uint64_t noted = 0;
  Noted last_noted = {};
  // Set by issue(): which branch of the program issues.
  std::uint64_t branch = 0;
  std::shared_ptr<const std::string> branch_path;  // null: the program itself
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;
  // Starts the collective as the next one of this communicator, and returns at once.
  // Error{BadInput} for shapes that do not fit, and in a branch that was resumed by as_it_comes or
  // in_order; what the branch was cancelled with. A disagreement between ranks (of geometry, of the
  // branch that issues, of what was given up before) is an Error{CommFailed} from the wait on all
  // of them, which names both call sites. From the library itself: those of the user call that it
  // works for (coro/user_call.h). What was given up counts on the communicator of the wait alone: a
  // rank that leaves out a collective for what only it has seen (a socket that was late, a deadline
  // that passed on another communicator) has a program of its own, and where its next collective
  // looks like the one that its peers are at, nobody can tell. Send and recv between two ranks
  // match in the order of their issue, whatever their branches.
  Work issue(Collective collective, CallSite where = CallSite::current());
  // A new communicator of `ranks` (of this one, each once), whose ranks follow their order. Only
  // they call it, with the same list, in the same order among themselves; nobody else takes part,
  // and nothing is issued. Error{BadInput} when this rank is not among them.
  virtual std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) = 0;
  // The same where all ranks of this communicator call it, each with the ranks that it will be
  // with: a back end may make all of these at once.
  virtual std::shared_ptr<Communicator> split(std::span<const int> ranks, std::string name) {
    return subgroup(ranks, std::move(name));
  }
  // What this rank has done that its peers must have done too, such as drawing from the common
  // random stream: the sum of all that was noted is compared with the next collective here, so that
  // ranks which did something else fail there (Error{CommFailed} on all), in whatever order. Of a
  // branch without order nothing is noted.
  void note(const Noted& done) { notes_.add(done); }
  void note(const Notes& before);
  // Every later wait, on every rank, fails at once with this cause. The first cause stays.
  virtual void poison(const std::string& cause) = 0;
  // How many collectives so far, and the hash of them in order; equal on all ranks. Send and Recv,
  // which only two ranks see, are matched per pair of ranks and count in neither.
  virtual std::uint64_t issued() const = 0;
  virtual std::uint64_t order_hash() const = 0;
  virtual void set_timeout(std::int64_t ns) = 0;  // 0: none; counted from the start of each wait
  // Who is told of issues and completions; null in the slot: nobody. Subgroups inherit
  // it.
  virtual void observe(ObserverSlot slot) = 0;

 private:
  virtual std::shared_ptr<WorkState> start(Collective collective) = 0;
  Notes notes_;
};

}  // namespace coshard
