#pragma once
// MPI processes inside one process: each has the table of functions of a shim (mpi_api.h), and all
// share a network that delivers late, in as odd an order as MPI allows, or not at all. Messages up
// to 4 KiB are sent at once, longer ones once they are received. A process's memory is read and
// written only while it polls. Any thread, if `now` and the hooks are called there.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/comm/mpi/mpi_api.h"
#include "runtime/launch/draw.h"

namespace coshard {

struct SimulatedMpiOptions {
  int processes = 1;
  std::uint64_t seed = 0;
  // The probability that a message never arrives, nor what follows it with the same source, target
  // and tag: MPI keeps the order of these.
  double lost = 0;
  std::int64_t slowest = 1;  // the longest delay of a message, as counted by `now`
  // Null: the polls so far, and several threads may poll. Else the network is that of this thread.
  std::function<std::int64_t()> now = nullptr;
  // The hooks are called with a lock held; null: not. `process` has something to do at `at`.
  std::function<void(int process, std::int64_t at)> due = nullptr;
  // "sends 24 bytes to process 1"
  std::function<void(int process, const std::string& what)> sent = nullptr;
  std::map<int, int> deaths = {};  // process -> after how many of its messages
  std::function<void(int process)> died = nullptr;
};

class SimulatedMpi {
 public:
  static constexpr int kMostProcesses = 8;
  // One per thread, or one of several threads, at a time.
  explicit SimulatedMpi(SimulatedMpiOptions options);
  ~SimulatedMpi();
  SimulatedMpi(const SimulatedMpi&) = delete;
  SimulatedMpi& operator=(const SimulatedMpi&) = delete;
  const MpiApi& api(int process) const;
  // It sends and receives nothing more; what it has sent at once arrives.
  void kill(int process);
  bool dead(int process);
  // So far, by this process.
  struct Sent {
    int messages = 0;
    std::int64_t bytes = 0;
  };
  Sent sent(int process);
  // Messages that have been sent and not received.
  std::size_t unmatched();

 private:
  friend struct SimulatedCalls;
  using Stream = std::tuple<int, int, int>;  // from, to, tag
  struct Message {
    Stream stream;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t cookie = 0;
    std::vector<std::byte> copy;
    bool left = false;    // its sender: `copy` is what arrives
    bool wanted = false;  // it is received: its sender may send it
    std::int64_t arrives = 0;
  };
  struct Receive {
    Stream stream;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t cookie = 0;
  };
  struct Process {
    std::deque<Receive> receives;
    std::vector<MpiDone> done, told;
    Sent sent;
    bool dead = false;
  };
  const char* send(int from, const void* data, std::size_t bytes, int to, int tag,
                   std::uint64_t cookie);
  const char* receive(int to, void* data, std::size_t bytes, int from, int tag,
                      std::uint64_t cookie);
  const char* poll(int process, const MpiDone** done, int* count);

  Process& of(int process) { return processes_[static_cast<std::size_t>(process)]; }
  std::int64_t now() const { return options_.now ? options_.now() : polls_; }
  std::int64_t delayed() { return now() + 1 + static_cast<std::int64_t>(draw_(slowest_)); }
  void due(int process, std::int64_t at) const {
    if (options_.due) options_.due(process, at);
  }
  bool is_lost(const Stream& stream);
  void leave(Message& message);
  void count_sent(int process);
  bool deliver(const Receive& receive);
  void tell(Process& process);

  const SimulatedMpiOptions options_;
  const std::uint64_t slowest_;
  std::mutex mutex_;  // all below
  Draw draw_;
  std::int64_t polls_ = 0;
  std::vector<Process> processes_;
  std::deque<Message> messages_;  // in the order of their sending
  std::map<Stream, std::int64_t> latest_;
  std::set<Stream> broken_;  // one of its messages was lost
};

}  // namespace coshard
