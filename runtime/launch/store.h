#pragma once
// Rendezvous of a job without MPI, as started by torchrun on GPUs: processes meet at process 0,
// which relays their messages. For NCCL ids, announcements and errors, not for data. Thread-safe.
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/control/liveness.h"
#include "runtime/launch/launcher.h"

namespace coshard {

// Where the processes of `launched` meet, and the secret that proves that they belong to one job:
// port COSHARD_PORT, or MASTER_PORT + 1, since torchrun itself holds MASTER_PORT; on loopback if
// all are on this host, else on MASTER_ADDR with COSHARD_TOKEN as the secret.
struct MeetingPoint {
  ControlAddress address;
  bool beyond = false;
};
// Error{BadInput}: several hosts without COSHARD_TOKEN, or no port; names the variable.
MeetingPoint meeting_point(const Launched& launched, const Environment& environment);

class Store {
 public:
  // Process 0 listens; the others connect to it. Error{CommFailed}: the port is taken, process 0
  // does not answer, or it has a different secret.
  Store(const Launched& launched, const MeetingPoint& where, std::chrono::milliseconds deadline);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // A function table like a shim's. At most one store per process.
  static const MpiApi& api();
  const std::shared_ptr<Liveness>& liveness() const { return liveness_; }

 private:
  struct Calls;  // the functions of api()
  struct Receive {
    char* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t cookie = 0;
  };
  using Key = std::pair<int, int>;  // from, tag
  struct Message {
    Key key;
    std::string data;
  };
  void arrived(Key from, std::string message);
  void post(Key from, Receive receive);
  void send(int to, int tag, std::string message, std::uint64_t cookie);
  void complete(const Receive& receive, const std::string& message);
  void poll(const MpiDone** done, int* count);
  void cancel(std::uint64_t cookie);
  void probe(int from, int* tag, std::size_t* bytes);

  int process_, processes_;
  std::shared_ptr<Liveness> liveness_;
  std::mutex mutex_;              // all below
  std::deque<Message> messages_;  // that no receive has taken, as they arrived
  std::map<Key, std::deque<Receive>> receives_;
  std::vector<MpiDone> done_;
  std::vector<MpiDone> told_;  // until the next poll
};

}  // namespace coshard
