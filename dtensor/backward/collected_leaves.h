#pragma once
// The leaves of one backward pass whose gradients are collected (grad_collector.h), in the order in
// which the pass completes them: a leaf is complete once the oldest record that reads it has run.
// That order is a function of the tape alone, so it is the same on all ranks. Rank's thread.
#include <functional>
#include <vector>

#include "dtensor/backward/grad_collector.h"

namespace coshard {

// A member of every collector, which lists it on its rank; it dies on that rank, or after it.
// Without one, no pass searches for leaves.
class CollectorHere {
 public:
  explicit CollectorHere(GradCollector& collector);
  ~CollectorHere();
  CollectorHere(const CollectorHere&) = delete;
  CollectorHere& operator=(const CollectorHere&) = delete;

 private:
  GradCollector& collector_;
};

class CollectedLeaves {
 public:
  using Meta = std::shared_ptr<GradMeta>;
  CollectedLeaves() = default;
  ~CollectedLeaves();  // gives up the collectors that have not ended
  CollectedLeaves(const CollectedLeaves&) = delete;
  CollectedLeaves& operator=(const CollectedLeaves&) = delete;

  // Finds the leaves reachable from `root` and calls begin() on their collectors.
  void find(const Meta& root);
  bool empty() const { return due_.empty(); }
  // Call when all records newer than `next` have run. Completes, in order, the leaves that no
  // remaining record reads, up to the first for which `settled` returns false.
  void ran_down_to(std::uint64_t next, const std::function<bool(const Meta&)>& settled);
  // Call when all records have run and all gradients have arrived: completes the leaves that are
  // left.
  void end();
  // Call after end(): what collectors still wait for; then, once it has arrived, settle().
  std::vector<Tensor> awaited() const;
  void settle();

 private:
  struct Due {
    std::uint64_t oldest;  // record that reads it
    Meta leaf;
    std::shared_ptr<GradCollector> collector;
  };

  std::vector<Due> due_;
  std::size_t done_ = 0;
  std::vector<std::shared_ptr<GradCollector>> begun_, ended_;
};

}  // namespace coshard
