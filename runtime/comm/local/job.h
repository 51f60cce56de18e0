#pragma once
// One collective of one group: the arguments of all ranks, and how far the transfer is. Owned by
// the group, which reuses it; a rank holds one reference from its issue until the job is over, a
// ticket another.
//
// Life of a job:
//   open       ranks write their entry, then raise `arrived`        (entry: written by its rank
//   only) armed      all are there and agree; `units` is set              (by the last rank to
//   arrive) claimed    `next` hands out units, each to one rank             (any rank that waits)
//   over       `done` has counted every unit; all recv buffers hold the result
// An all_gather is also worked on while open: the shard of a source goes to a target as soon as
// these two are there. Its units are the pairs (source, target), each claimed through `pairs`.
#include <atomic>
#include <cstdint>
#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/comm/local/device_job.h"

namespace coshard {

// A pair of an all_gather: Todo -> Taken (by compare-exchange: one worker) -> Done (release: the
// data is there).
enum class Pair : std::uint8_t { Todo, Taken, Done };

// `arrived`: false -> true when `args` may be read by others (release / acquire; sequentially
// consistent because a sleeping peer's check of it must not be missed, see LocalGroup::wake).
struct alignas(64) Entry {
  Collective args;
  std::uint64_t fingerprint = 0;
  std::atomic<bool> arrived{false};
};

struct Job {
  explicit Job(int ranks)
      : entries(std::make_unique<Entry[]>(static_cast<std::size_t>(ranks))),
        pairs(std::make_unique<std::atomic<Pair>[]>(static_cast<std::size_t>(ranks * ranks))) {}

  std::uint64_t sequence = 0;  // set when opened, before any rank gets the job
  int joined = 0;              // ranks that got the job; under the group's mutex
  std::unique_ptr<Entry[]> entries;
  std::unique_ptr<std::atomic<Pair>[]> pairs;  // [source * ranks + target]
  // Set before `armed`: how many units, elements per unit, units per target rank.
  std::uint32_t units = 0;
  std::int64_t chunk = 0;
  std::uint32_t per_target = 1;
  std::unique_ptr<DeviceJob> device;  // null on the cpu

  // Ranks and tickets that still use the job; at 0 (release / acquire) the group may open it again.
  std::atomic<int> references{0};
  // 0 .. ranks. The rank that makes it full checks and arms the job; acq_rel so that it sees all
  // entries.
  alignas(64) std::atomic<int> arrived{0};
  // false -> true with units set. Sequentially consistent together with `next` and the group's
  // poison: a worker that claims a unit sees the poison, or who abandons the job sees that it is
  // armed.
  std::atomic<bool> armed{false};
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
