#pragma once
// The emulated links of the ranks of one group: one each, first in first out. Owned by the group,
// so that every communicator, and with it every mesh dimension, has links of its own; a dimension
// that was flattened has too, as fast as those that it spans. Any thread.
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/runtime/comm/link.h>
#include <coshard/runtime/spin_lock.h>

namespace coshard {

struct Job;

// When a collective or message passes its link, by the clock of the ranks. It is over at `end` at
// the earliest; its bytes move from `begin` + latency on.
struct Passage {
  std::int64_t begin = 0, end = 0;
};

class LinkQueue {
 public:
  LinkQueue(const Link& link, int ranks)
      : link_(link), text_(to_string(link)), free_ns_(static_cast<std::size_t>(ranks), 0) {}
  const std::string& text() const { return text_; }  // "20us,1GB/s"

  // A job to which the last rank has come just now: takes the links of all ranks.
  Passage pass(const Job& job);
  // A message whose second side was posted just now: takes the link of its sender.
  Passage pass_message(int sender, std::int64_t bytes);
  // When the shard of `source` is there on `target`, of an all_gather whose passage is known: its
  // own at once, then rank + 1 and so on, each as its share of the transfer has passed.
  std::int64_t part_ns(const Job& job, int source, int target) const;

  // The clock of the rank on this thread.
  static std::int64_t now();

 private:
  Link link_;
  std::string text_;
  SpinLock lock_;                      // the one below
  std::vector<std::int64_t> free_ns_;  // by rank: from when on its link is free
};

}  // namespace coshard
