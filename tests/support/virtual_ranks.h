#pragma once
// Ranks as fibers of one thread with a virtual clock: waits take exactly their nominal time, and
// computing takes none. For tests of links, deadlines and timers.
#include <functional>
#include <memory>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include "runtime/comm/local/thread_group.h"
#include "runtime/coro/fiber_thread.h"

namespace coshard::testing {

using RankBody = std::function<Task<void>(Communicator& communicator)>;

// Runs body(communicator of all ranks) on each rank; rethrows the first error.
inline void on_virtual_ranks(int ranks, const ThreadGroupOptions& options, const RankBody& body) {
  struct InTurn final : FiberPolicy {
    std::size_t pick(std::size_t) override { return 0; }
    bool virtual_time() const override { return true; }
  } policy;
  FiberThread thread(&policy);
  ThreadGroup thread_group(ranks, "tp", options);
  std::vector<std::unique_ptr<RankContext>> contexts;
  for (int rank = 0; rank < ranks; ++rank) {
    Parker& parker = thread.spawn([&, rank](Parker&) {
      try {
        Executor executor;
        const std::shared_ptr<Communicator> communicator = thread_group.communicator(rank);
        executor.run(body(*communicator));
      } catch (...) {
        thread_group.poison(text_of(std::current_exception()));
        throw;
      }
    });
    contexts.push_back(std::make_unique<RankContext>(&parker));
  }
  thread.on_switch([&](int fiber) {
    RankContext::exchange(fiber < 0 ? nullptr : contexts[static_cast<std::size_t>(fiber)].get());
  });
  thread.run();
}

// The time of the calling rank.
inline std::int64_t virtual_now() { return RankContext::current().parker().now(); }

}  // namespace coshard::testing
