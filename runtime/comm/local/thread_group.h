#pragma once
// Connects ranks that are threads of one process. Created before the threads, owned by the code
// that starts them; each rank gets its communicator from it. All functions are thread-safe.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/cost/link.h>
#include "runtime/comm/peer_failure.h"

namespace coshard {

class DeadlockDetector;
class LocalGroup;
class RemoteRanks;
class TransferClock;
struct LocalRegistry;

struct ThreadGroupOptions {
  std::optional<Link> link;             // emulated, per communicator; see link_queue.h
  int progress_threads = 0;             // see progress_threads.h; they end with the group
  std::shared_ptr<RemoteRanks> remote;  // ranks in other processes; null: none
  std::uint64_t key = 0;                // the world's, the same in every process
};

class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks, std::string name = "world", ThreadGroupOptions options = {});
  // After the ranks: drops groups that some of their members never joined.
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // The communicator of all ranks, for `rank`; call it once per rank. When its last owner drops it,
  // peers that still need this rank fail at once.
  std::shared_ptr<Communicator> communicator(int rank);
  // Fails every wait on every existing or future communicator, on all ranks.
  void poison(const std::string& cause);
  // In a simulation, before the ranks begin: transfers ask `clock` whether they may proceed. With
  // ranks in other processes, it also replaces the progress threads.
  void use(TransferClock& clock);
  // One round of a progress thread. Returns when to call it again without a notification; 0: never.
  std::int64_t progress();
  // Ranks in other processes are to be driven, by the progress threads if by nobody else.
  void poll_remote();
  // Rings every waiter on any communicator.
  void wake();
  // The program of world rank `rank` has ended: it will issue nothing more on any communicator.
  void leave(int rank);
  bool left(int rank) const;
  // Only the ranks of the detector use these communicators. Call it before they start.
  void count_in(DeadlockDetector& deadlock_detector);
  // "last issued #39 all_reduce on tp[4] 1.7 s ago", on any communicator.
  std::string last_seen(int rank) const;

 private:
  std::shared_ptr<LocalRegistry> registry_;
  std::shared_ptr<LocalGroup> world_;
};

}  // namespace coshard
