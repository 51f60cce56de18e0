#pragma once
// Which processes of a job are alive, and what they tell each other when something fails. Each
// process has one TCP connection, to process 0, which passes everything on. A thread of its own
// ("liveness") serves it and never enters MPI: it works while MPI blocks, and after a peer has
// died. Thread-safe.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace coshard {

class Liveness {
 public:
  // Where process 0 listens, and what proves to it that a connection comes from its job.
  struct Address {
    std::vector<std::string> hosts;  // to be tried in this order
    std::uint16_t port = 0;
    std::string secret;
  };
  // Called on its thread, one at a time.
  struct Hooks {
    // Its connection has ended before it said goodbye, or does not answer. Once for each process.
    std::function<void(int process, const std::string& why)> lost;
    // Connected, and yet silent for a quarter of the deadline: stopped, or starved.
    std::function<void(int process, std::chrono::milliseconds since)> silent;
    // What say() was called with, in one order for all processes.
    std::function<void(int from, const std::string& text)> said;
    // Asked now and then: whether data move here over a slow link.
    std::function<bool()> moves_slowly;
    // Likewise: whether they move here without a pause, in whatever blocks.
    std::function<bool()> moves_steadily;
    // Told now and then, while the former is so in some process, or the latter in this one, which
    // has been heard from within half of the deadline. It may wait for that.
    std::function<void(int process)> may_wait;
  };

  // Process 0. `beyond`: processes on other hosts connect as well.
  Liveness(int processes, bool beyond);
  // Process 0, at an address that all know: its one host or, unless `beyond`, loopback; waits until
  // `deadline` for a port that is taken. Error{CommFailed} names the port.
  Liveness(int processes, const Address& address, bool beyond, std::chrono::milliseconds deadline);
  // Any other process. Error{CommFailed}: process 0 did not answer within `deadline`.
  Liveness(int process, int processes, const Address& address, std::chrono::milliseconds deadline);
  // Says goodbye: what happens to this process from now on is no failure.
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  const Address& address() const;
  // Replaces the hooks; empty ones: nobody listens. Those processes that are lost by now, and what
  // was said while nobody listened, are told at once. No hook runs after it has returned.
  void listen(Hooks hooks);
  // To all processes, this one as well; at most 64 KiB. What process 0 can no longer pass on reaches
  // this one only.
  void say(const std::string& text);
  // Messages for what processes tell each other before and beside data, by way of process 0. At most
  // 4 MiB; those of two processes keep their order. `told` runs on the thread of this, from one
  // call to the next; null: messages are dropped.
  void send_message(int to, int tag, std::string bytes);
  void on_message(std::function<void(int from, int tag, std::string bytes)> told);
  // `process` runs on this host under `pid`: its end is noticed here also where a process that it
  // has forked keeps its connection open. Without effect before Linux 5.3.
  void watch(int process, int pid);
  // Of the waits that it watches over; a link that is down is noticed before it.
  void set_deadline(std::chrono::milliseconds deadline);
  std::vector<int> lost() const;

 private:
  class Hub;
  std::unique_ptr<Hub> hub_;
};

}  // namespace coshard
