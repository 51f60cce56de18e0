#pragma once
// Who the ranks of a world are, how they reach each other, how a failure travels and who is alive:
// all that run_ranks knows about them. Created before the ranks, owned by run_ranks, outlives them.
// Thread-safe.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

class Census;
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
  // `told` is called, on any thread, when fail() was called in another process. Set it before the
  // ranks start.
  virtual void on_failure(std::function<void(const std::string& cause)> told) = 0;
  // Registers the sleepers, if only the ranks in `census` can wake one of them. Call it before they
  // start.
  virtual void count_in(Census& census) = 0;
  // The program of `rank`, one of here(), has ended: whoever waits for it fails at once.
  virtual void leave(int rank) = 0;
  // Whether `rank`, here or elsewhere, may still issue something, as far as this process knows.
  virtual bool alive(int rank) const = 0;
  // "last issued #39 all_reduce 1.7 s ago": of a rank here or elsewhere, for error messages.
  virtual std::string last_seen(int rank) const = 0;
};

// Ranks that are threads of this process.
std::unique_ptr<Roster> make_roster(const WorldOptions& options);

}  // namespace coshard
