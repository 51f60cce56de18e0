#pragma once
// Work that is put off until its result is waited for. Rank's thread.
#include <functional>
#include <utility>

#include "runtime/comm/communicator.h"

namespace coshard {

// The ticket of a result that this rank still has to put in place, once `ticket` (which may be
// empty) is over: whoever waits does it.
class FollowUp final : public TicketState {
 public:
  FollowUp(Ticket ticket, std::function<void()> follow)
      : ticket_(std::move(ticket)), follow_(std::move(follow)) {}
  bool ready() override {
    if (follow_ && !ticket_.ready()) return false;
    wait();
    return true;
  }
  void wait() override {
    if (!follow_) return;
    ticket_.wait();
    std::exchange(follow_, nullptr)();
  }
  int parts() const override { return 1; }
  bool part_ready(int) override { return ready(); }
  void wait_part(int) override { wait(); }

 private:
  Ticket ticket_;
  std::function<void()> follow_;
};

}  // namespace coshard
