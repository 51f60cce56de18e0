#pragma once
// Joins ranks that are threads of one process. Made before the threads, owned by who starts them;
// each rank takes its communicator from it. Every function from any thread.
#include <memory>
#include <optional>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/link.h"
#include "runtime/error.h"

namespace coshard {

class LocalGroup;
struct LocalRegistry;

// What a wait throws on ranks that only learn of a failure: the communicator was poisoned, or a
// peer has left. Its text holds the first cause. A launcher prefers the error of the rank that
// failed first.
class PeerFailure : public Error {
 public:
  explicit PeerFailure(const std::string& message) : Error(ErrorKind::CommFailed, message) {}
};

struct FabricOptions {
  std::optional<Link> link;  // emulated, of each communicator; see local/link_queue.h
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
  // The program of world rank `rank` has ended: it will issue nothing more on any communicator.
  void leave(int rank);

 private:
  std::shared_ptr<LocalRegistry> registry_;
  std::shared_ptr<LocalGroup> world_;
};

}  // namespace coshard
