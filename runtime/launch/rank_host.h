#pragma once
// Where the ranks of a world run: a thread each, fibers of few threads, a simulation. Made and used
// by who starts them.
#include <exception>
#include <functional>
#include <memory>

namespace coshard {

class Executor;
class LocalFabric;
class Sleeper;
struct WorldOptions;
class World;
template <class T>
class Task;

// What a host runs. All but watch() on any thread.
struct RankProgram {
  // The whole life of `rank`, on its thread or fiber, whose RankContext is current; `executor` is
  // made for it, and outlives all ranks. Throws nothing.
  std::function<void(int rank, Executor& executor)> run;
  // It cannot be run.
  std::function<void(int rank, const std::exception_ptr& error)> failed;
  // Nothing of `rank` is left, or it could not be run; the last that a host says of it, once.
  std::function<void(int rank)> ended;
  // On the thread that called RankHost::run, while ranks run on others: returns when all have
  // ended.
  std::function<void()> watch;
  // The rank in the census of its world (census.h), for a host whose ranks sleep in real time; may
  // be null, and give null.
  std::function<Sleeper*(int rank)> sleeper;
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
