#pragma once
// Lets the ranks of a world agree to stop without waiting for each other: each call sends one byte
// per rank on a separate communicator and returns the result of the previous call. Owned by a
// rank's World, used on its thread.
#include <cstdint>
#include <memory>
#include <stop_token>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

class StopRequest {
 public:
  // `control`: a communicator of all ranks of the world on the host, used for nothing else; null:
  // the world cannot be stopped, and nothing is issued. `stop` may be requested on any thread, at
  // any time.
  StopRequest(std::shared_ptr<Communicator> control, std::stop_token stop);

  // Call k sends whether `stop` was requested here and returns the result of call k-1: true if it
  // was requested on any rank. The first returns false. Issued when awaited; fails like any
  // collective.
  Task<bool> ask(CallSite site);

 private:
  struct Byte;
  // One call: its byte, and the collective that takes the maximum over all ranks.
  struct Question {
    std::shared_ptr<Byte> byte;  // null: no call yet
    Work work;
  };

  Question issue();

  std::shared_ptr<Communicator> control_;
  std::stop_token stop_;
  Question last_;
};

}  // namespace coshard
#pragma GCC visibility pop
