#pragma once
// Ranks that share one thread, each on a fiber of its own. Owned by a RankHost. The executors
// outlive the FiberThread: its io_context may hold handlers of their tasks.
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include "runtime/coro/census.h"
#include "runtime/coro/fiber_thread.h"
#include "runtime/launch/rank_host.h"

namespace coshard {

class RankFibers {
 public:
  explicit RankFibers(FiberPolicy* policy = nullptr);
  // Before run(). `program` outlives it.
  void add(int rank, const RankProgram& program);
  // Whether its end was told.
  bool ended(int rank) const;
  // On the thread of the ranks, until all have ended. Throws what FiberThread::run does.
  void run();

  FiberThread& thread() { return thread_; }
  // `hook` before a rank goes on; throws nothing.
  void on_turn(std::function<void(int rank)> hook) { on_turn_ = std::move(hook); }
  // The executors of ranks that have begun and not ended, by rank; of this thread.
  template <class F>
  void each(const F& f) {
    for (const auto& rank : ranks_)
      if (rank->lives && rank->executor) f(rank->number, *rank->executor);
  }

 private:
  struct Rank {
    int number = 0;
    std::optional<CountedParker> parker;
    std::optional<RankContext> context;  // stays: other threads may still post to its executor
    std::unique_ptr<Executor> executor;
    bool lives = false;  // its fiber runs or is off
    bool ended = false;  // and that was told
  };
  static void live(Rank& rank, Parker& parker, FiberThread& thread, const RankProgram& program);

  void switched(int fiber);

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::function<void(int)> on_turn_;
  FiberThread thread_;
};

}  // namespace coshard
