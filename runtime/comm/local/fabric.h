#pragma once
// Joins ranks that are threads of one process. Made before the threads, owned by who starts them;
// each rank takes its communicator from it. Every function from any thread.
#include <memory>
#include <optional>
#include <string>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/comm/link.h>
#include "runtime/comm/peer_failure.h"

namespace coshard {

class Census;
class LocalGroup;
class TransferClock;
struct LocalRegistry;

struct FabricOptions {
  std::optional<Link> link;  // emulated, of each communicator; see local/link_queue.h
  int progress_threads = 0;  // see local/progress_threads.h; they end with the fabric
};

class LocalFabric {
 public:
  explicit LocalFabric(int ranks, std::string name = "world", FabricOptions options = {});
  // After the ranks: lets go of groups that not all of their members came to.
  ~LocalFabric();
  LocalFabric(const LocalFabric&) = delete;
  LocalFabric& operator=(const LocalFabric&) = delete;

  // The communicator of all ranks, for `rank`; once per rank. Its last owner says good-bye for the
  // rank: peers that still miss it fail at once.
  std::shared_ptr<Communicator> communicator(int rank);
  // Fails every wait on every communicator that was or will be made, on all ranks.
  void poison(const std::string& cause);
  // In a simulation, before the ranks begin: transfers ask it whether they may go on.
  void use(TransferClock& clock);
  // Rings for all who wait for any communicator.
  void wake();
  // The program of world rank `rank` has ended: it will issue nothing more on any communicator.
  void leave(int rank);
  bool left(int rank) const;
  // Nobody but the ranks in `census` uses these communicators. Before they start.
  void count_in(Census& census);
  // "last issued #39 all_reduce 1.7 s ago": on the communicator of all.
  std::string last_seen(int rank) const;

 private:
  std::shared_ptr<LocalRegistry> registry_;
  std::shared_ptr<LocalGroup> world_;
};

}  // namespace coshard
