#include "runtime/comm/local/link_queue.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include <coshard/runtime/coro/rank_context.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/host/collective_op.h"

namespace coshard {

namespace {

// Saturates at the end of the clock.
std::int64_t later(std::int64_t ns, std::int64_t by) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(ns, by, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

// For an all_to_all with counts; -1: for any other collective.
std::int64_t counted_bytes_to_others(const Collective& c, int rank) {
  if (c.send_counts == nullptr) return -1;
  std::int64_t elements = 0;
  for (int r = 0; r < static_cast<int>(c.send_counts->size()); ++r)
    if (r != rank) elements += (*c.send_counts)[static_cast<std::size_t>(r)];
  return elements * static_cast<std::int64_t>(size_of(c.dtype));
}

}  // namespace

std::int64_t LinkQueue::now() { return RankContext::current().parker().now(); }

Passage LinkQueue::pass(const CollectiveOp& op) {
  const Collective& any = op.entries[0].args;
  const int ranks = static_cast<int>(free_ns_.size());
  std::int64_t bytes = 0, to_others = -1;
  for (int r = 0; r < ranks; ++r) {
    const Collective& c = op.entries[static_cast<std::size_t>(r)].args;
    bytes = std::max(bytes, larger_bytes(c, ranks, r));
    to_others = std::max(to_others, counted_bytes_to_others(c, r));
  }
  // Counts may be uneven, but the bytes that leave the busiest rank are known exactly.
  const std::int64_t passes = to_others >= 0 ? to_others : algorithmic_bytes(any, ranks, bytes);
  const std::int64_t took = any.control_only ? 0 : link_.time_ns(passes);
  const std::scoped_lock lock(lock_);
  Passage passage{now()};
  for (const std::int64_t free : free_ns_) passage.begin = std::max(passage.begin, free);
  passage.end = later(passage.begin, took);
  std::ranges::fill(free_ns_, passage.end);
  return passage;
}

Passage LinkQueue::pass_message(int sender, std::int64_t bytes) {
  const std::scoped_lock lock(lock_);
  std::int64_t& free = free_ns_[static_cast<std::size_t>(sender)];
  const std::int64_t begin = std::max(now(), free);
  free = later(begin, link_.time_ns(bytes));
  return {begin, free};
}

std::int64_t LinkQueue::part_ns(const CollectiveOp& op, int source, int target) const {
  const Collective& any = op.entries[0].args;
  const int ranks = static_cast<int>(free_ns_.size());
  const auto size_of_part = [&](int r) {
    return shard_extent(any.counts, any.extent, ranks, r).size;
  };
  double moved = 0, all = 0;
  bool before = true;
  for (int r = (target + 1) % ranks; r != target; r = (r + 1) % ranks) {
    const auto size = static_cast<double>(size_of_part(r));
    all += size;
    if (before) moved += size;
    if (r == source) before = false;
  }
  const std::int64_t first = std::min(later(op.passage.begin, link_.latency_ns()), op.passage.end);
  const double share = all > 0 ? moved / all : 1;
  return first + static_cast<std::int64_t>(share * static_cast<double>(op.passage.end - first));
}

}  // namespace coshard
