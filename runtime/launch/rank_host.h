#pragma once
// Where the ranks of a world run: a thread each, fibers of few threads, a simulation. Made and used
// by who starts them.
#include <exception>
#include <functional>
#include <memory>

namespace coshard {

class Executor;
class LocalFabric;
struct WorldOptions;
class World;
template <class T>
class Task;

// What a host runs. Both functions on any thread.
struct RankProgram {
  // The whole life of `rank`, on its thread or fiber, whose RankContext is current; `executor` is
  // made there, and outlives it. Throws nothing.
  std::function<void(int rank, Executor& executor)> run;
  // It cannot be run.
  std::function<void(int rank, const std::exception_ptr& error)> failed;
};

class RankHost {
 public:
  virtual ~RankHost() = default;
  // Returns when the programs of all ranks have ended. Throws what handlers of the user's threw
  // where no rank was there to get it.
  virtual void run(int ranks, LocalFabric& fabric, const RankProgram& program) = 0;
};

// A thread per rank.
std::unique_ptr<RankHost> own_threads();
// Rank r is a fiber of thread r % threads. A rank that waits, for a collective in place too, lets
// the next one of its thread run; one that computes does not.
std::unique_ptr<RankHost> shared_threads(int threads);

// run_ranks, with ranks that run there.
void run_ranks_on(RankHost& host, const WorldOptions& options,
                  const std::function<Task<void>(World&)>& program);

}  // namespace coshard
