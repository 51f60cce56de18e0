#pragma once
// A link that several communicators use at once, in virtual time: transfers in flight share its
// rate evenly, and those of one queue run in order. Times are computed as late as possible, since a
// transfer issued later may slow down those in flight. One thread.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/cost/link_model.h"

namespace coshard {

// Virtual ns. Parts arrive at even intervals while the link is in use, the first at once; the last
// arrival completes the transfer.
struct Transfer {
  std::vector<std::int64_t> arrivals;  // of the parts so far
  bool arrived(std::size_t part) const { return part < arrivals.size(); }

  const void* queue = nullptr;
  std::size_t parts = 1;
  double ready = 0, latency_left = 0, busy_left = 0, busy = 0;
};

class SharedLink {
 public:
  // `ready` is the time of issue; it must not be earlier than that of any transfer added before.
  std::shared_ptr<Transfer> add(const void* queue, std::int64_t ready, LinkTime time,
                                int parts = 1);
  // Computes the arrivals up to `now`; nothing may be issued before `now` afterwards.
  void advance(std::int64_t now);
  // Computes the arrival of a part; nothing may be issued before that time afterwards.
  std::int64_t wait_for(const Transfer& transfer, std::size_t part);

 private:
  std::vector<Transfer*> under_way() const;
  double next_change(const std::vector<Transfer*>& heads) const;
  void pass(const std::vector<Transfer*>& heads, double ns);
  bool step(double limit);

  std::deque<std::shared_ptr<Transfer>> open_;  // incomplete, in order of issue
  double now_ = 0;
};

}  // namespace coshard
