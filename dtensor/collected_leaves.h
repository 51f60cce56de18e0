#pragma once
// The leaves of one backward pass whose gradients are collected (grad_collector.h), in the order in
// which the pass completes them: a leaf is complete once the oldest record that reads it has run.
// That order is a function of the tape alone, so it is the same on all ranks. Rank's thread.
#include <functional>
#include <vector>

#include "dtensor/grad_collector.h"

namespace coshard {

// A rank with a collector keeps one alive: without, no pass looks for leaves.
class CollectorHere {
 public:
  CollectorHere();
  ~CollectorHere();
  CollectorHere(const CollectorHere&) = delete;
  CollectorHere& operator=(const CollectorHere&) = delete;
};

class CollectedLeaves {
 public:
  using Meta = std::shared_ptr<GradMeta>;
  CollectedLeaves() = default;
  ~CollectedLeaves();  // what has not ended is given up
  CollectedLeaves(const CollectedLeaves&) = delete;
  CollectedLeaves& operator=(const CollectedLeaves&) = delete;

  // Looks for the leaves behind `root` and begins with their collectors.
  void find(const Meta& root);
  bool empty() const { return due_.empty(); }
  // Records newer than `next` have run. Completes, in order, the leaves that none of the others
  // reads, up to the first that `settled` says is still waiting.
  void ran_down_to(std::uint64_t next, const std::function<bool(const Meta&)>& settled);
  // All have run.
  void end();

 private:
  struct Due {
    std::uint64_t oldest;  // record that reads it
    Meta leaf;
    std::shared_ptr<GradCollector> collector;
  };

  std::vector<Due> due_;
  std::size_t done_ = 0;
  std::vector<std::shared_ptr<GradCollector>> begun_;
};

}  // namespace coshard
