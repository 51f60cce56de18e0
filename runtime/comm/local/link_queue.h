#pragma once
// The emulated FIFO links of one group's ranks, one each. Owned by the group, so that every
// communicator, and every mesh dimension, has its own links; a flattened dimension has too, as fast
// as those it spans. Any thread.
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/runtime/comm/link.h>
#include <coshard/runtime/spin_lock.h>

namespace coshard {

struct CollectiveOp;

// When a collective or message passes its link, by the ranks' clock. It ends at `end` or later; its
// bytes move from `begin` + latency on.
struct Passage {
  std::int64_t begin = 0, end = 0;
};

class LinkQueue {
 public:
  LinkQueue(const Link& link, int ranks)
      : link_(link), text_(to_string(link)), free_ns_(static_cast<std::size_t>(ranks), 0) {}
  const std::string& text() const { return text_; }  // "20us,1GB/s"

  // An op whose last rank has just arrived: takes the links of all ranks.
  Passage pass(const CollectiveOp& op);
  // A message whose second side has just been posted: takes its sender's link.
  Passage pass_message(int sender, std::int64_t bytes);
  // When the shard of `source` arrives on `target`, for an all_gather whose passage is known: its
  // own at once, then rank + 1 and so on, each when its share of the transfer has passed.
  std::int64_t part_ns(const CollectiveOp& op, int source, int target) const;

  // The clock of the rank on this thread.
  static std::int64_t now();

 private:
  Link link_;
  std::string text_;
  SpinLock lock_;                      // the one below
  std::vector<std::int64_t> free_ns_;  // by rank: from when on its link is free
};

}  // namespace coshard
