#pragma once
// Detects which processes of a job are alive, and carries their messages about failures. Each
// process has one TCP connection, to process 0, which relays everything. A dedicated thread
// ("liveness") serves it and never enters MPI, so it works while MPI blocks and after a peer has
// died. Thread-safe.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/control/control_acceptor.h"

namespace coshard {

class Liveness {
 public:
  // Called on its thread, one at a time.
  struct Hooks {
    // Its connection ended before it said goodbye, or it does not answer. Once for each process.
    std::function<void(int process, const std::string& why)> lost;
    // Connected but silent for a quarter of the deadline: stopped, or starved of CPU time.
    std::function<void(int process, std::chrono::milliseconds since)> silent;
    // The messages of say(), in the same order in all processes.
    std::function<void(int from, const std::string& text)> said;
    // Polled: whether this process is moving data over a slow link.
    std::function<bool()> moves_slowly;
    // Polled: whether this process is moving data without a pause, in blocks of any size.
    std::function<bool()> moves_steadily;
    // Called periodically for a process that was heard from within half of the deadline, while data
    // move slowly in any process or steadily in `process`: waits for it may be extended.
    std::function<void(int process)> may_wait;
  };

  // Process 0. `beyond`: processes on other hosts connect as well.
  Liveness(int processes, bool beyond);
  // Process 0, at an address known to all: its only host or, unless `beyond`, loopback; if the port
  // is taken, retries until `deadline`. Error{CommFailed} names the port.
  Liveness(int processes, const ControlAddress& address, bool beyond,
           std::chrono::milliseconds deadline);
  // Any other process. Error{CommFailed}: process 0 did not answer within `deadline`.
  Liveness(int process, int processes, const ControlAddress& address,
           std::chrono::milliseconds deadline);
  // Says goodbye: the end of this process is no longer a failure.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  const ControlAddress& address() const;
  // Replaces the hooks; empty ones: no listener. Processes already lost, and messages said while
  // there was no listener, are reported at once. No previous hook runs after this has returned.
  void listen(Hooks hooks);
  // Sends to all processes, including this one; at most 64 KiB. Without a connection to process 0,
  // it reaches only this one.
  void say(const std::string& text);
  // Messages between two processes, before and beside the data, relayed by process 0. At most 4
  // MiB; ordered between two processes. `told` runs on the liveness thread, until replaced by the
  // next call; null: messages are dropped.
  void send_message(int to, int tag, std::string bytes);
  void on_message(std::function<void(int from, int tag, std::string bytes)> told);
  // `process` runs on this host as `pid`: its end is then noticed even if a child that it forked
  // keeps its connection open. No effect before Linux 5.3.
  void watch(int process, int pid);
  // The deadline of the waits it watches over; a dead link is detected sooner.
  void set_deadline(std::chrono::milliseconds deadline);
  std::vector<int> lost() const;

 private:
  class Hub;
  std::unique_ptr<Hub> hub_;
};

}  // namespace coshard
