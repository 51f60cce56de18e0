#pragma once
// The emulated FIFO links of one group, one per rank. Owned by the group, so that every
// communicator, and every mesh dimension, has its own links; so does a flattened dimension, at the
// same speed as those it spans. Any thread.
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/spin_lock.h>

namespace coshard {

struct CollectiveOp;

// The time in which a collective or message occupies its link, by the ranks' clock. It completes at
// `end` or later; its bytes move from `begin` + latency on.
struct Passage {
  std::int64_t begin = 0, end = 0;
};

class LinkQueue {
 public:
  LinkQueue(const Link& link, int ranks)
      : link_(link), text_(to_string(link)), free_ns_(static_cast<std::size_t>(ranks), 0) {}
  const std::string& text() const { return text_; }  // "20us,1GB/s"

  // For an op whose last rank has just arrived: occupies the links of all ranks.
  Passage pass(const CollectiveOp& op);
  // For a message whose second side has just been posted: occupies its sender's link.
  Passage pass_message(int sender, std::int64_t bytes);
  // When the shard of `source` arrives on `target`, for an all_gather whose passage is known: the
  // rank's own shard at once, then that of rank + 1 and so on, each after its share of the transfer
  // time.
  std::int64_t part_ns(const CollectiveOp& op, int source, int target) const;

  // The clock of the rank on this thread.
  static std::int64_t now();

 private:
  Link link_;
  std::string text_;
  SpinLock lock_;                      // guards free_ns_
  std::vector<std::int64_t> free_ns_;  // by rank: when its link becomes free
};

}  // namespace coshard
