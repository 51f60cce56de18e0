#pragma once
// How the ranks of a world agree to stop without waiting for each other: each time they ask, one
// byte per rank is on its way on a communicator of its own, and the answer is that of the time
// before. Owned by the World of a rank, used on its thread.
#include <cstdint>
#include <memory>
#include <stop_token>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

class StopRequest {
 public:
  // `control`: all ranks of the world, on the host, for nothing else; null: the world can not be
  // stopped, and nothing is ever issued. `stop` may be requested on any thread, at any time.
  StopRequest(std::shared_ptr<Communicator> control, std::stop_token stop);

  // Call k issues whether `stop` is requested here, and gives what call k-1 found: true when it was
  // requested on any rank. The first gives false. Issued when it is awaited; fails like any
  // collective.
  Task<bool> ask(CallSite site);

 private:
  struct Byte;
  // One call: its byte, and the collective that makes it the greatest of all ranks.
  struct Question {
    std::shared_ptr<Byte> byte;  // null: there was no call yet
    Work work;
  };

  Question issue();

  std::shared_ptr<Communicator> control_;
  std::stop_token stop_;
  Question last_;
};

}  // namespace coshard
