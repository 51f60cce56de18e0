#pragma once
// Where the ranks of a world run: one thread each, fibers on a few threads, or a simulation.
// Created and used by the code that starts them.
#include <exception>
#include <functional>
#include <memory>
#include <span>

// Included rather than forward declared: a first declaration outside of their headers would give
// all their members hidden visibility.
#include <coshard/runtime/launch/world.h>

namespace coshard {

class ThreadGroup;
class WaiterState;
class RankDirectory;

// What a host runs. All except watch() on any thread.
struct RankProgram {
  // The whole life of `rank`, on its thread or fiber, with its RankContext current; `executor` was
  // created for it and outlives all ranks. Must not throw.
  std::function<void(int rank, Executor& executor)> run;
  // The rank could not be run.
  std::function<void(int rank, const std::exception_ptr& error)> failed;
  // `rank` has been torn down, or could not be run: the host's last call for it, once.
  std::function<void(int rank)> ended;
  // On the thread or fiber that called RankHost::run, while ranks run on others: returns when all
  // have ended.
  std::function<void()> watch;
  // The rank in the deadlock detector of its world (deadlock_detector.h), for hosts whose ranks
  // sleep in real time; may be null, or return null.
  std::function<WaiterState*(int rank)> waiter_state;
};

class RankHost {
 public:
  virtual ~RankHost() = default;
  // Where the thread or fiber that calls run() sleeps, and its clock: virtual in a simulation.
  virtual Parker& parker() { return parker_; }
  // Returns when the programs of all ranks have ended. Throws exceptions of user handlers that no
  // rank could receive.
  // `ranks`: those of this process, ascending.
  virtual void run(std::span<const int> ranks, ThreadGroup& thread_group,
                   const RankProgram& program) = 0;

 private:
  ThreadParker parker_;
};

// One thread per rank.
std::unique_ptr<RankHost> own_threads();
// Rank r is a fiber of thread r % threads. A waiting rank, even in a blocking wait, lets the next
// rank of its thread run; a computing one does not.
std::unique_ptr<RankHost> shared_threads(int threads, std::size_t stack_bytes);

// run_ranks with the ranks of `directory` on `host`. `options` are settled.
void run_ranks_on(RankHost& host, const WorldOptions& options,
                  std::unique_ptr<RankDirectory> directory,
                  const std::function<Task<void>(World&)>& program);

}  // namespace coshard
