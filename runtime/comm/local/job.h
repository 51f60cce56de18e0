#pragma once
// One collective of one group: the arguments of all ranks, and how far the transfer is. Owned by
// the group, which reuses it; a rank holds one reference from its issue until the job is over, a
// work handle another.
//
// Life of a job:
//   open        ranks issue: they write their entry             (entry: written by its rank only)
//   prepared    what fills a rank's send buffer is done: `arrived` is raised
//   armed       all have arrived and agree; `units` is set      (by the last rank to arrive)
//   claimed     `next` hands out units, each to one rank        (any rank that waits)
//   completing  all units are done: `next_completion` hands out what follows on each rank's side
//   over        all recv buffers hold the result
// An all_gather is also worked on while open: the shard of a source goes to a target as soon as
// these two are there. Its units are the pairs (source, target), each claimed through `pairs`.
#include <atomic>
#include <cstdint>
#include <memory>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/local/device_job.h"
#include "runtime/comm/local/link_queue.h"

namespace coshard {

// A pair of an all_gather: Todo -> Taken (by compare-exchange: one worker) -> Done (release: the
// data is there).
enum class Pair : std::uint8_t { Todo, Taken, Done };

// None: not issued. Issued: `args` may be read, the send buffer may not. Preparing: one thread
// fills it. Arrived: it may be read. Release on every change; sequentially consistent because a
// sleeping peer's check of it must not be missed, see LocalGroup::wake.
enum class Stage : std::uint8_t { None, Issued, Preparing, Arrived };

// What ranks compare: the geometry of the call, and what this rank has given up before.
struct Print {
  std::uint64_t call = 0, given_up = 0;
};

struct alignas(64) Entry {
  Collective args;
  Print print;
  std::atomic<Stage> stage{Stage::None};
  // With links, while Issued or Preparing: before that time what fills the send buffer is not over.
  // 0: unknown.
  std::atomic<std::int64_t> not_before_ns{0};
  // Somebody found it Preparing, and may sleep. Sequentially consistent, with `stage`.
  std::atomic<bool> wanted{false};
  bool issued() const { return stage.load() != Stage::None; }
  bool arrived() const { return stage.load() == Stage::Arrived; }
  bool prepares() const {
    const Stage now = stage.load();
    return now == Stage::Issued || now == Stage::Preparing;
  }
};

struct Job {
  explicit Job(int ranks) : entries(std::make_unique<Entry[]>(static_cast<std::size_t>(ranks))) {}

  std::uint64_t sequence = 0;  // set when opened, before any rank gets the job
  int joined = 0;              // ranks that got the job; under the group's mutex
  std::unique_ptr<Entry[]> entries;
  std::unique_ptr<std::atomic<Pair>[]> pairs;  // [source * ranks + target]; of an all_gather
  bool has_pairs = false;                      // `pairs` are this job's; under the group's mutex
  // Set before `armed`: how many units, elements per unit, units per target rank.
  std::uint32_t units = 0;
  std::int64_t chunk = 0;
  std::uint32_t per_target = 1;
  Passage passage;                    // with links
  std::shared_ptr<DeviceJob> device;  // null on the cpu

  // Ranks and work handles that still use the job; at 0 (release / acquire) the group may open it
  // again.
  std::atomic<int> references{0};
  // 0 .. ranks. The rank that makes it full checks and arms the job; acq_rel so that it sees all
  // entries.
  alignas(64) std::atomic<int> arrived{0};
  // false -> true with units set. Sequentially consistent together with `next` and the group's
  // poison: a worker that claims a unit sees the poison, or who abandons the job sees that it is
  // armed.
  std::atomic<bool> armed{false};
  std::atomic<int> unprepared{0};  // entries that are Issued, or have been until just now
  // Jobs of other groups wait for it. Sequentially consistent, with `over`: who finishes sees it,
  // or who waits sees that it is over.
  std::atomic<bool> has_dependents{false};
  std::atomic<bool> completes{false};   // some rank has something to do after the transfer
  std::atomic<bool> completing{false};  // false -> true when all units are done; release
  std::atomic<std::uint32_t> next_completion{0}, completions{0};  // ranks; as `next` and `done`
  alignas(64) std::atomic<std::uint32_t> next{0};  // the next unit to claim; may run past `units`
  alignas(64) std::atomic<std::uint32_t> done{
      0};  // units done; acq_rel chains the writes of all workers
  // false -> true by the worker of the last unit, with over_ns set before; sequentially consistent,
  // see LocalGroup::wake.
  alignas(64) std::atomic<bool> over{false};
  std::atomic<bool> timed{false};        // some rank is observed: take the time when over
  std::atomic<std::int64_t> over_ns{0};  // steady clock
};

}  // namespace coshard
