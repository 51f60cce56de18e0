#pragma once
// The ranks of a world: where they are, how they reach each other, how failures propagate and which
// ranks are alive. Created before the ranks, owned by run_ranks, outlives them. Thread-safe.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/comm/blocking_collective.h"

namespace coshard {

class DeadlockDetector;
class Job;
class ThreadGroup;

class RankDirectory {
 public:
  virtual ~RankDirectory() = default;
  virtual int size() const = 0;
  // The ranks of the world in this process, ascending.
  virtual const std::vector<int>& here() const = 0;
  // Connects the ranks of here(); null: they do not share memory.
  virtual ThreadGroup* thread_group() = 0;
  // Connects all ranks through host memory, on any device; once per rank of here(), on its thread.
  // When its last owner releases it, the rank counts as having left.
  virtual std::shared_ptr<Communicator> control(int rank) = 0;
  // Fails every wait of every rank of the world, here and elsewhere, on every existing or future
  // communicator, with `cause`. The first cause is kept.
  virtual void fail(const std::string& cause) = 0;
  // `told` is called, on any thread, when fail() was called in another process or a process has
  // died. Set it before the ranks start.
  virtual void on_failure(std::function<void(const std::string& cause)> told) = 0;
  // After a failure: whether this process must report it. One of the processes that failed does; if
  // a process has died, all others do. May block for 0.3 s.
  virtual bool reports_failure() = 0;
  // Has the detector find deadlocks on this directory's communicators, and registers their helper
  // threads, if only its ranks can wake each other; otherwise does nothing. Call it before the
  // ranks start.
  virtual void count_in(DeadlockDetector& deadlock_detector) = 0;
  // The program of `rank`, one of here(), has ended: waits for it fail at once.
  virtual void leave(int rank) = 0;
  // Called when all ranks of here() have left: returns when those elsewhere have too, or soon after
  // a failure.
  virtual void end() = 0;
  // Non-blocking end(): whether it would return. Poll it.
  virtual bool over() { return true; }
  // Whether `rank`, here or elsewhere, may still issue collectives, as far as this process knows.
  virtual bool alive(int rank) const = 0;
  // "last issued #39 all_reduce on tp[4] 1.7 s ago", for a rank here or elsewhere; for error
  // messages.
  virtual std::string last_seen(int rank) const = 0;
  // How many ranks with lower numbers run on the host of `rank`, one of here(); selects its GPU.
  virtual int place_on_host(int rank) const { return rank; }
  // The host of each rank; hosts are numbered in order of their first ranks. Empty: a single host.
  virtual std::vector<int> hosts() const { return {}; }
};

// Ranks that are threads of this process or, if a launcher started several processes, of all of
// them.
std::unique_ptr<RankDirectory> make_directory(const WorldOptions& options);
// Replaces make_directory() in tests; null: the default.
void use_directories(std::unique_ptr<RankDirectory> (*maker)(const WorldOptions&));
std::unique_ptr<RankDirectory> make_thread_directory(const WorldOptions& options);
std::unique_ptr<RankDirectory> make_process_directory(const WorldOptions& options);
std::unique_ptr<RankDirectory> make_process_directory(const WorldOptions& options, Job& job);

struct Processes {
  int all = 1;
  int here = 1;  // upper bound for this node
  int self = 0;
  std::string mpi;  // the MPI between them, with its version; "": a single process
  // For benchmarks: a collective of that MPI, called by all processes while nothing is in flight.
  // Returns null, or the error.
  const char* (*blocking)(BlockingCollective kind, const void* send, void* recv,
                          std::size_t elements) = nullptr;
};
// The processes of this process's job. Error{BadInput}: the launcher's variables are contradictory
// or incomplete, or the job needs an MPI that is missing.
Processes processes(const WorldOptions& options);

}  // namespace coshard
