#pragma once
// Who the ranks of a world are, how they reach each other, how a failure travels and who is alive:
// all that run_ranks knows of them. Made before the ranks, owned by run_ranks, outlives them. Every
// function from any thread.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

class Census;
class LocalFabric;
struct WorldOptions;

class Roster {
 public:
  virtual ~Roster() = default;
  virtual int size() const = 0;
  // The ranks of the world that this process runs, ascending.
  virtual const std::vector<int>& here() const = 0;
  // What joins the ranks of here(); null: they do not share memory.
  virtual LocalFabric* fabric() = 0;
  // Joins all ranks through host memory, whatever their devices are; once per rank of here(), on
  // its thread. Its last owner says good-bye for the rank on it.
  virtual std::shared_ptr<Communicator> control(int rank) = 0;
  // Fails every wait of every rank of the world, here and elsewhere, on every communicator that was
  // or will be made, with `cause`. The first cause stays.
  virtual void fail(const std::string& cause) = 0;
  // `told` is called, on any thread, when fail() was called in another process. Before the ranks
  // start.
  virtual void on_failure(std::function<void(const std::string& cause)> told) = 0;
  // Where nobody but the ranks in `census` can wake one of them: takes note of it. Before they
  // start.
  virtual void count_in(Census& census) = 0;
  // The program of `rank`, one of here(), has ended: who waits for it fails at once.
  virtual void leave(int rank) = 0;
  // Whether `rank`, here or elsewhere, may still issue something, as far as this process knows.
  virtual bool alive(int rank) const = 0;
  // "last issued #39 all_reduce 1.7 s ago": of a rank here or elsewhere, for error messages.
  virtual std::string last_seen(int rank) const = 0;
};

// Threads of this process.
std::unique_ptr<Roster> make_roster(const WorldOptions& options);

}  // namespace coshard
