#pragma once
// One collective of one group: the arguments of all ranks, and the progress of the transfer. Owned
// by the group, which reuses it; a rank holds one reference from its issue until the op is over, a
// work handle another.
//
// Life of an op:
//   open        each rank writes its own entry when it issues
//   prepared    a rank's send buffer is filled: it increments `arrived`
//   armed       all ranks have arrived and agree: the last one sets `chunks`, then `armed`
//   claimed     waiting ranks claim chunks through `next`, each chunk exactly once
//   completing  all chunks are done: `next_completion` hands out each rank's completion callback
//   over        every recv buffer holds the result
// An all_gather starts while the op is still open: a shard is copied as soon as its source and its
// target have arrived. Its chunks are the pairs (source, target), claimed through `pairs`.
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/local/device/device_op.h"
#include "runtime/comm/local/link_queue.h"

namespace coshard {

// A pair of an all_gather: Todo -> Taken (by compare-exchange: one worker) -> Done (release: the
// data have arrived).
enum class Pair : std::uint8_t { Todo, Taken, Done };

// None: not issued. Announced: issued by a rank in another process, data not here yet. Issued:
// `args` may be read, the send buffer may not. Preparing: one thread is filling the send buffer.
// Arrived: the send buffer may be read. Every change releases; sequentially consistent because a
// sleeping peer's check must not miss it, see LocalGroup::wake.
enum class Stage : std::uint8_t { None, Announced, Issued, Preparing, Arrived };

// Hashes that ranks compare: of the call's geometry, and of the awaits this rank gave up before.
struct Print {
  std::uint64_t call = 0, given_up = 0;
};

struct alignas(64) Entry {
  Collective args;
  Print print;
  std::atomic<Stage> stage{Stage::None};
  // With links, while Issued or Preparing: the earliest time at which the send buffer can be
  // filled. 0: unknown.
  std::atomic<std::int64_t> not_before_ns{0};
  // A thread found it Preparing and may sleep. Sequentially consistent, with `stage`.
  std::atomic<bool> wanted{false};
  // For a rank in another process: its contiguous data for each rank of the group that is here.
  // Empty: this rank is here.
  std::vector<const void*> packed;
  bool issued() const { return stage.load() != Stage::None; }
  bool announced() const { return stage.load() == Stage::Announced; }
  bool arrived() const { return stage.load() == Stage::Arrived; }
  bool prepares() const {
    const Stage now = stage.load();
    return now == Stage::Issued || now == Stage::Preparing;
  }
};

// State of an op with ranks in other processes, kept until it is over.
struct RemoteState {
  virtual ~RemoteState() = default;
  // Ranks of the group whose processes have not yet received all that this one sends.
  virtual std::vector<int> not_taken() const = 0;
  // Ranks of the group whose processes sum a shard that has not arrived here.
  virtual std::vector<int> not_summed() const = 0;
};

struct CollectiveOp {
  explicit CollectiveOp(int ranks)
      : entries(std::make_unique<Entry[]>(static_cast<std::size_t>(ranks))) {}
  void release() { references.fetch_sub(1, std::memory_order_acq_rel); }

  std::uint64_t sequence = 0;  // set when opened, before any rank gets the op
  int joined = 0;              // ranks that got the op; under the group's mutex
  std::unique_ptr<Entry[]> entries;
  std::unique_ptr<std::atomic<Pair>[]> pairs;  // all_gather: [source * ranks + target]
  bool has_pairs = false;                      // `pairs` are this op's; under the group's mutex
  // Set before `armed`: number of chunks, elements per chunk, chunks per target rank.
  std::uint32_t chunks = 0;
  std::int64_t chunk_elements = 0;
  std::uint32_t per_target = 1;
  // all_reduce: the elements summed here. With a second half, the others are summed in other
  // processes: when the chunks are done, these are sent and those received; the start of this
  // exchange counts as one more chunk done.
  std::int64_t first = 0, last = 0;
  bool second_half = false;
  Passage passage;                   // with links
  std::shared_ptr<DeviceOp> device;  // null on the cpu
  // Null: all ranks are here. Otherwise `gates` counts one for each rank here until its data have
  // been sent, and one until the op is armed; reaching 0 counts as one more chunk done.
  std::shared_ptr<RemoteState> remote;
  std::atomic<int> gates{0};
  bool remote_ranks = false;  // set when opened

  // Ranks, work handles and threads (OpReference) that still use the op; at 0 (release / acquire)
  // the group may reuse it.
  std::atomic<int> references{0};
  // 0 .. ranks. The last rank to arrive checks and arms the op; acq_rel so that it sees all
  // entries.
  alignas(64) std::atomic<int> arrived{0};
  // false -> true with chunks set. Sequentially consistent together with `next` and the group's
  // poison: a worker that claims a chunk sees the poison, or a rank that abandons the op sees that
  // it is armed.
  std::atomic<bool> armed{false};
  std::atomic<int> unprepared{0};  // entries that are Issued or Preparing, approximately
  // Ops of other groups depend on it. Sequentially consistent, with `over`: the finishing thread
  // sees it, or the waiting one sees that the op is over.
  std::atomic<bool> has_dependents{false};
  std::atomic<bool> completes{false};   // some rank has a completion callback
  std::atomic<bool> completing{false};  // false -> true when all chunks are done; release
  std::atomic<std::uint32_t> next_completion{0}, completions{0};  // ranks; as `next` and `done`
  alignas(64) std::atomic<std::uint32_t> next{0};  // the next chunk to claim; may run past `chunks`
  // Chunks done; acq_rel chains the writes of all workers.
  alignas(64) std::atomic<std::uint32_t> done{0};
  // false -> true by the worker of the last chunk, after over_ns is set; sequentially consistent,
  // see LocalGroup::wake.
  alignas(64) std::atomic<bool> over{false};
  std::atomic<bool> timed{false};        // some rank is observed: record the time when over
  std::atomic<std::int64_t> over_ns{0};  // steady clock
};

// Keeps an op from being reused. For whoever is no rank of it, from a time at which the op cannot
// be over: the last step of another thread may end it, and the rank that waits may begin the next
// one in it, before this one has looked at it for the last time.
class OpReference {
 public:
  explicit OpReference(CollectiveOp& op) noexcept : op_(op) {
    op.references.fetch_add(1, std::memory_order_relaxed);
  }
  ~OpReference() { op_.release(); }
  OpReference(const OpReference&) = delete;
  OpReference& operator=(const OpReference&) = delete;

 private:
  CollectiveOp& op_;
};

inline Entry& entry(const CollectiveOp& op, int rank) {
  return op.entries[static_cast<std::size_t>(rank)];
}

}  // namespace coshard
