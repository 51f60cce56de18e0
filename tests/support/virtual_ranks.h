#pragma once
// Ranks as fibers of one thread with a virtual clock: waits take exactly their nominal time, and
// computing takes none. For tests of links, deadlines and timers.
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/launch/simulate.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/coro/fiber_thread.h"
#include "tests/support/ends.h"

namespace coshard::testing {

using RankBody = std::function<Task<void>(Communicator& communicator)>;

// Runs body(rank) on each rank; rethrows the first error.
inline void on_virtual_fibers(int ranks, const std::function<void(int rank)>& body) {
  struct InTurn final : FiberPolicy {
    std::size_t pick(std::size_t) override { return 0; }
    bool virtual_time() const override { return true; }
  } policy;
  FiberThread thread(&policy);
  std::vector<std::unique_ptr<RankContext>> contexts;
  for (int rank = 0; rank < ranks; ++rank) {
    Parker& parker = thread.spawn([&, rank](Parker&) { body(rank); });
    contexts.push_back(std::make_unique<RankContext>(&parker));
  }
  thread.on_switch([&](int fiber) {
    RankContext::exchange(fiber < 0 ? nullptr : contexts[static_cast<std::size_t>(fiber)].get());
  });
  thread.run();
}

// Runs body(communicator of all ranks) on each rank; rethrows the first error.
inline void on_virtual_ranks(int ranks, const ThreadGroupOptions& options, const RankBody& body) {
  ThreadGroup thread_group(ranks, "tp", options);
  on_virtual_fibers(ranks, [&](int rank) {
    try {
      Executor executor;
      const std::shared_ptr<Communicator> communicator = thread_group.communicator(rank);
      executor.run(body(*communicator));
    } catch (...) {
      thread_group.poison(text_of(std::current_exception()));
      throw;
    }
  });
}

// The time of the calling rank.
inline std::int64_t virtual_now() { return RankContext::current().parker().now(); }

// Runs one task; returns how long it took.
inline std::chrono::nanoseconds in_virtual_time(const std::function<Task<void>()>& body) {
  std::int64_t took = 0;
  on_virtual_ranks(1, {}, [&](Communicator&) -> Task<void> {
    const std::int64_t begin = virtual_now();
    Task<void> task = body();
    co_await std::move(task);
    took = virtual_now() - begin;
  });
  return std::chrono::nanoseconds(took);
}

// Keeps the calling rank busy for `time` by its clock, as a computation does that awaits nothing.
inline void compute_for(std::chrono::nanoseconds time) {
  Parker& parker = RankContext::current().parker();
  const std::int64_t end = parker.now() + time.count();
  while (parker.now() < end) parker.park(end);
  parker.unpark();  // it may have been woken meanwhile
}

// ends_of() of a simulated run.
inline std::vector<End> simulated_ends_of(const WorldOptions& options, const Program& program) {
  std::vector<End> ends(static_cast<std::size_t>(options.ranks));
  try {
    simulate(
        options,
        [&](World& world) {
          return keep_end(program(world), ends[static_cast<std::size_t>(world.rank())]);
        },
        0);
  } catch (...) {  // each rank has recorded its own
  }
  return ends;
}

}  // namespace coshard::testing
