#pragma once
// Who the ranks of a world are, how they reach each other, how a failure travels and who is alive:
// all that run_ranks knows about them. Created before the ranks, owned by run_ranks, outlives them.
// Thread-safe.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/blocking_collective.h"

namespace coshard {

class Census;
class Job;
class ThreadGroup;
struct WorldOptions;

class Roster {
 public:
  virtual ~Roster() = default;
  virtual int size() const = 0;
  // The ranks of the world in this process, ascending.
  virtual const std::vector<int>& here() const = 0;
  // Joins the ranks of here(); null: they do not share memory.
  virtual ThreadGroup* thread_group() = 0;
  // Joins all ranks through host memory, on any device; once per rank of here(), on its thread.
  // When its last owner drops it, the rank counts as gone.
  virtual std::shared_ptr<Communicator> control(int rank) = 0;
  // Fails every wait of every rank of the world, here and elsewhere, on every existing or future
  // communicator, with `cause`. The first cause is kept.
  virtual void fail(const std::string& cause) = 0;
  // `told` is called, on any thread, when fail() was called in another process, or one has died. Set
  // it before the ranks start.
  virtual void on_failure(std::function<void(const std::string& cause)> told) = 0;
  // After a failure: whether this process is to report it. One of those that have failed does, and
  // if one has died all others do. May take 0.3 s.
  virtual bool reports_failure() = 0;
  // Registers the sleepers, if only the ranks in `census` can wake one of them. Call it before they
  // start.
  virtual void count_in(Census& census) = 0;
  // The program of `rank`, one of here(), has ended: whoever waits for it fails at once.
  virtual void leave(int rank) = 0;
  // All ranks of here() have left: returns when those elsewhere have, or soon after a failure.
  virtual void end() = 0;
  // The same without waiting: whether they have. To be asked again soon.
  virtual bool over() { return true; }
  // Whether `rank`, here or elsewhere, may still issue something, as far as this process knows.
  virtual bool alive(int rank) const = 0;
  // "last issued #39 all_reduce 1.7 s ago": of a rank here or elsewhere, for error messages.
  virtual std::string last_seen(int rank) const = 0;
  // How many ranks with lower numbers run on the host of `rank`, one of here(): which GPU it gets.
  virtual int place_on_host(int rank) const { return rank; }
  // The host of each rank, numbered in the order of their first ranks; empty: there is one.
  virtual std::vector<int> hosts() const { return {}; }
};

// Ranks that are threads of this process, or where a launcher has started several processes also of
// those.
std::unique_ptr<Roster> make_roster(const WorldOptions& options);
// Tests replace it; null: as above.
void use_rosters(std::unique_ptr<Roster> (*maker)(const WorldOptions&));
std::unique_ptr<Roster> make_thread_roster(const WorldOptions& options);
std::unique_ptr<Roster> make_process_roster(const WorldOptions& options);
std::unique_ptr<Roster> make_process_roster(const WorldOptions& options, Job& job);

struct Processes {
  int all = 1;
  int here = 1;  // on this node, at most
  int self = 0;
  std::string mpi;  // between them, with its version; "": there is one
  // For benches: the collective of that MPI, called by all while nothing is in flight. Null, or what
  // has failed.
  const char* (*blocking)(BlockingCollective kind, const void* send, void* recv,
                          std::size_t elements) = nullptr;
};
// Of the job that this process is part of. Error{BadInput}: what has started it is contradictory,
// incomplete, or of no use without an MPI.
Processes processes(const WorldOptions& options);

}  // namespace coshard
