#pragma once
// Ranks that share one thread, each on its own fiber. Owned by a RankHost. The executors outlive
// the FiberThread: its io_context may hold handlers of their tasks.
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/executor.h>
#include "runtime/coro/deadlock_detector.h"
#include "runtime/coro/fiber_thread.h"
#include "runtime/launch/rank_host.h"

namespace coshard {

class RankFibers {
 public:
  explicit RankFibers(std::size_t stack_bytes, FiberPolicy* policy = nullptr);
  // Before run(). `program` must outlive this object.
  void add(int rank, const RankProgram& program);
  // Whether the rank's end has been reported.
  bool ended(int rank) const;
  // Runs on the ranks' thread until all have ended. Throws as FiberThread::run.
  void run();

  FiberThread& thread() { return thread_; }
  // `hook` is called before a rank resumes; must not throw.
  void on_turn(std::function<void(int rank)> hook) { on_turn_ = std::move(hook); }
  // Calls f(rank, executor) for each rank that has begun and not ended; on this thread.
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
    bool lives = false;  // its fiber has begun and not ended
    bool ended = false;  // and its end was reported
  };
  static void live(Rank& rank, Parker& parker, FiberThread& thread, const RankProgram& program);

  void switched(int fiber);

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::function<void(int)> on_turn_;
  FiberThread thread_;
};

}  // namespace coshard
