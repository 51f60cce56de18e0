#pragma once
// A link that several communicators use at once, in virtual time: transfers that are under way share
// its rate evenly, and those of one queue follow each other. Times are found as late as possible,
// since what is issued later may slow down what is under way. One thread.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/device/sim/link_model.h"

namespace coshard {

// Virtual ns. Parts arrive evenly while the link is used, the first at once; the last is the end.
struct Transfer {
  std::vector<std::int64_t> arrivals;  // of the parts so far
  bool arrived(std::size_t part) const { return part < arrivals.size(); }

  const void* queue = nullptr;
  std::size_t parts = 1;
  double ready = 0, latency_left = 0, busy_left = 0, busy = 0;
};

class SharedLink {
 public:
  // Not earlier than any transfer before: ready is the time of the issue.
  std::shared_ptr<Transfer> add(const void* queue, std::int64_t ready, LinkTime time,
                                int parts = 1);
  // Finds the arrivals up to `now`: nothing will be issued before.
  void advance(std::int64_t now);
  // Finds the arrival of a part, before which nothing will be issued any more.
  std::int64_t wait_for(const Transfer& transfer, std::size_t part);

 private:
  std::vector<Transfer*> under_way() const;
  double next_change(const std::vector<Transfer*>& heads) const;
  void pass(const std::vector<Transfer*>& heads, double ns);
  bool step(double limit);

  std::deque<std::shared_ptr<Transfer>> open_;  // not over, in order of issue
  double now_ = 0;
};

}  // namespace coshard
