#pragma once
// MPI processes simulated in one process: each has a shim's function table (mpi_api.h), and all
// share a network that delivers late, in any order that MPI allows, or not at all. Messages up to 4
// KiB are sent eagerly, longer ones when a receive is posted (rendezvous). A process's memory is
// accessed only while it polls, except that eager messages are read when sent. Any thread, if `now`
// and the hooks may be called there.
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
  // The probability that a message is lost, along with all later ones of the same source, target
  // and tag, which MPI keeps in order.
  double lost = 0;
  std::int64_t slowest = 1;  // the longest delay of a message, in units of `now`
  // Null: the clock is the number of polls, and several threads may poll. Otherwise for one thread
  // only.
  std::function<std::int64_t()> now = nullptr;
  // The hooks are called with a lock held, if not null. `process` has something to do at `at`.
  std::function<void(int process, std::int64_t at)> due = nullptr;
  // "sends 24 bytes to process 1"
  std::function<void(int process, const std::string& what)> sent = nullptr;
  std::map<int, int> deaths = {};  // process -> number of messages it sends before it dies
  std::function<void(int process)> died = nullptr;
};

class SimulatedMpi {
 public:
  static constexpr int kMostProcesses = 8;
  // One at a time per thread, or one shared by several threads.
  explicit SimulatedMpi(SimulatedMpiOptions options);
  ~SimulatedMpi();
  SimulatedMpi(const SimulatedMpi&) = delete;
  SimulatedMpi& operator=(const SimulatedMpi&) = delete;
  const MpiApi& api(int process) const;
  // `process` sends and receives nothing more; what it has sent eagerly arrives.
  void kill(int process);
  bool dead(int process);
  // Totals so far, by process.
  struct Sent {
    int messages = 0;
    std::int64_t bytes = 0;
  };
  Sent sent(int process);
  // Messages sent but not received.
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
    bool left = false;    // has left the sender; `copy` is what arrives
    bool wanted = false;  // a receive is posted: the sender may send it
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
  const char* cancel(int process, std::uint64_t cookie);
  const char* probe(int process, int from, int* tag, std::size_t* bytes);

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
  std::deque<Message> messages_;  // in send order
  std::map<Stream, std::int64_t> latest_;
  std::set<Stream> broken_;  // one of its messages was lost
};

}  // namespace coshard
