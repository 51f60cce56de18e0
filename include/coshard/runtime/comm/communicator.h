#pragma once
// A communicator connects a group of ranks: all of a world, or those along a mesh dimension.
// Collectives are issued in program order by the rank's thread and are in flight until their Work
// is awaited.
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

#pragma GCC visibility push(default)
namespace coshard {

// How many positions of the sharded dimension each rank has. Shared and immutable, so that a cached
// plan hands it out without allocating.
using Counts = std::shared_ptr<const std::vector<std::int64_t>>;

// Something that a rank did locally (Communicator::note); "": nothing yet.
struct Noted {
  std::string_view what = "", of_what = "";  // static texts, shown as: what, value, of_what, of
  std::uint64_t value = 0, of = 0;
};
// The sum over all notes, which does not depend on their order, and the last one.
struct Notes {
  void add(const Noted& done);  // does nothing in a branch without order
  std::uint64_t sum = 0;
  Noted last;
};

// Hashes of what all ranks must hold alike, such as parameters, and their names for the error.
struct ReplicaHashes {
  std::vector<std::uint64_t> hashes;
  std::vector<std::string> names;
  // If given, what has the same name and hash on two ranks must have the same here, too, or the error
  // says `about`. What one of them lacks is not compared; what differs in both is warned of, once.
  std::vector<std::uint64_t> gradients;
  std::vector<std::string> about;
  std::vector<const void*> of = {};  // on this rank alone: what is hashed
};

// One rank's arguments to a collective. The tensor is viewed as [outer, sharded, inner]; `counts`
// splits the sharded dimension over the ranks (positions per rank; offsets are prefix sums; null:
// equal parts of `extent`, which must divide). Buffers are contiguous; `send` may equal `recv` for
// all_reduce and broadcast.
//
//   AllReduce      send, recv [outer*extent*inner]
//   AllGather      send [outer, counts[rank], inner]    recv [outer, sum(counts), inner]
//   ReduceScatter  send [outer, sum(counts), inner]     recv [outer, counts[rank], inner]
//   Scatter        send (root only) [outer, sum, inner] recv [outer, counts[rank], inner]
//   Broadcast      send (root only), recv [outer*extent*inner]
//   Send / Recv    [outer*extent*inner]; `root` is the peer
//   AllToAll       Shard(a) -> Shard(b): the tensor is [outer, a, middle, b, inner], or
//                  [outer, b, middle, a, inner] if gather_first is false. `counts` splits a,
//                  `scatter_counts` splits b. send has a sharded and b whole, recv the reverse.
//                  With `send_counts` and `recv_counts`: element counts per peer, blocks back to
//                  back (MPI_Alltoallv).
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
  // Control only: ranks compare their calls and nothing is moved. Back ends that move data by other
  // means issue it on their control communicator. The work is over once all ranks have issued it;
  // with ranks in other processes, once the rank's predecessor has (local/announcements.h).
  bool control_only = false;
  // Control only, of a barrier: what a graph that is launched issues, compared as one, with other
  // launches only. `extent` is their number, `inner` a hash of them.
  std::shared_ptr<const std::vector<Collective>> launched;
  bool unobserved = false;  // an internal check, hidden from observers
  // AllGather: the caller waits for the shards one by one, so that computing with the first hides
  // the transfer of the others. NCCL then brings them by one send and one recv per round (own shard
  // first, then that of rank+1, ...), where one all_gather would bring all of them at its end; that
  // takes n-1 latencies instead of one. Equal on all ranks.
  bool by_shards = false;
  // Kept alive until the collective is over on every rank, or in compute-stream order.
  std::shared_ptr<Buffer> keep_send, keep_recv;
  std::string_view label = "";  // static or interned text
  // What ranks compare beyond the geometry: the logical shape (null: unknown; of several tensors,
  // with -1 between them), and the names of what is sent (static or interned text).
  Counts shape;
  std::string_view names = "";
  // Numbers of the data, the same on ranks that run the same program: of the parts of a bucket
  // (null: unknown), and of all (0: unknown). Like the line of the call, they may differ between
  // ranks, but not be swapped.
  Counts order;
  std::uint64_t origin = 0;
  std::shared_ptr<const ReplicaHashes> replicas;  // compared where both ranks have some
  CallSite where = {};  // what error messages name; if unknown, where issue() is called
  // Set by issue(): more on the location, for error messages.
  std::string_view operation = "", module = "";
  // On the CPU: the transfer begins once `after` (which must be one of any_thread) is over;
  // `complete` runs after it on this rank's side, on any thread. Null: nothing.
  std::shared_ptr<WorkState> after;
  std::function<void()> complete;
  // Set by issue(): the sum of this rank's notes here, and the last note.
  std::uint64_t noted = 0;
  Noted last_noted = {};
  // Set by issue(): the branch that issues it.
  std::uint64_t branch = 0;
  std::shared_ptr<const std::string> branch_path;  // null: the main branch
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;
  // Whether the shards of every all_gather arrive one by one. False: only of one that asks for it
  // (Collective::by_shards). The same on all ranks and communicators of a world.
  virtual bool gathers_by_shards() const { return false; }
  // Issues the collective as the next one on this communicator, and returns at once.
  //   Order:  send and recv between two ranks match in the order of their issue, whatever their
  //           branches.
  //   Fails:  Error{BadInput}: shapes that do not fit; a branch that was resumed by as_it_comes or
  //           in_order. In a cancelled branch, the cause of its cancellation. If ranks disagree (on
  //           geometry, shape, names, operator, module, issuing branch, or the waits they gave up
  //           before), the wait fails on all of them with Error{CommFailed}, which names both call
  //           sites; calls from within the library count as the user call they work for
  //           (coro/user_call.h). So does the later one of two equal collectives that a rank has
  //           swapped, if they differ in origin, or in line (and file name) and perhaps in origin,
  //           and at most 63 collectives lie between them; and a bucket that has the parts of the
  //           others' in another order.
  //   Limits: a wait that a rank gave up is compared only on the communicator of that wait. A rank
  //           that skips a collective because of something only it saw (a late socket, a deadline
  //           that passed on another communicator) runs a different program; if its next collective
  //           matches the one its peers are at, this is not detected.
  Work issue(Collective collective, CallSite where = CallSite::current());
  // Returns once issue() would not have to wait for peers to get less far behind: a back end may limit
  // how far ahead of them a rank gets. Fails like a wait.
  virtual void make_room() {}
  // A new communicator of `ranks` (ranks of this one, each once, in the given order). Called only
  // by those ranks, with the same list, in the same order among themselves; others take no part,
  // and nothing is issued. Error{BadInput} if this rank is not listed.
  virtual std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) = 0;
  // The same, called by all ranks of this communicator, each with the ranks of its own group: a
  // back end may create all groups at once.
  virtual std::shared_ptr<Communicator> split(std::span<const int> ranks, std::string name) {
    return subgroup(ranks, std::move(name));
  }
  // The next collective here carries these hashes (Collective::replicas), those of one thing (`of`)
  // once. Ranks that have none, or others, need not call this.
  void compare_with_next(const ReplicaHashes& hashes);
  // Records something that this rank did and its peers must have done too, such as drawing from the
  // common random stream. The next collective here compares the sum of all notes, in any order, so
  // that ranks that did something else fail there (Error{CommFailed} on all). Ignored in a branch
  // without order.
  void note(const Noted& done) { notes_.add(done); }
  void note(const Notes& before);
  // Every later wait, on every rank, fails at once with this cause. The first cause is kept.
  virtual void poison(const std::string& cause) = 0;
  // Number of collectives so far, and a hash of them in order; equal on all ranks. Send and Recv,
  // which only two ranks see, are matched per pair of ranks and count in neither.
  virtual std::uint64_t issued() const = 0;
  virtual std::uint64_t order_hash() const = 0;
  // Limit of each wait, counted from its start; 0: none. Once all ranks have issued a collective, a
  // wait for its data from other processes lasts longer while data keep arriving.
  virtual void set_timeout(std::int64_t ns) = 0;
  // The observer to notify of issues and completions; null in the slot: none. Subgroups inherit it.
  virtual void observe(ObserverSlot slot) = 0;

 private:
  virtual std::shared_ptr<WorkState> start(Collective collective) = 0;
  Notes notes_;
  std::shared_ptr<ReplicaHashes> next_hashes_;  // for the next collective; null: none
};

}  // namespace coshard
#pragma GCC visibility pop
