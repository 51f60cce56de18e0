// The order in which groups of sharded parameters run.
#include <algorithm>
#include <utility>

#include <coshard/dtensor/tape/tape.h>
#include "styles/shard_group.h"

namespace coshard {
namespace {

bool is(const ShardSchedule::Group& one, const ShardGroup& group) {
  return one.lock().get() == &group;
}

// The first that is not `group`; null: there is none.
template <class Iterator>
std::shared_ptr<ShardGroup> first_other(Iterator from, Iterator end, const ShardGroup& group) {
  const auto found = std::find_if(from, end, [&](const auto& each) { return !is(each, group); });
  return found == end ? nullptr : found->lock();
}

}  // namespace

void ShardSchedule::begin_forward(const std::shared_ptr<ShardGroup>& group) {
  if (running_++ == 0) {
    last_ = std::exchange(now_, {});
    at_ = 0;
    if (grad_enabled()) left_.clear();
  }
  now_.push_back(group);
}

void ShardSchedule::end_forward() {
  if (--running_ > 0) return;
  for (const Group& each : all_)  // prefetched, but not used
    if (const auto group = each.lock(); group && group->reshards() && !group->is_running())
      group->release();
}

void ShardSchedule::gather_next(const ShardGroup& group) {
  const auto from = last_.begin() + static_cast<std::ptrdiff_t>(at_);
  const auto found =
      std::find_if(from, last_.end(), [&](const Group& each) { return is(each, group); });
  if (found == last_.end()) return;  // it did not run here last time
  at_ = static_cast<std::size_t>(found - last_.begin()) + 1;
  if (const auto next = first_other(found + 1, last_.end(), group)) next->gather();
}

void ShardSchedule::gather_previous(const ShardGroup& group) {
  const auto found = std::find_if(left_.rbegin(), left_.rend(),
                                  [&](const Group& each) { return is(each, group); });
  if (found == left_.rend()) return;
  const auto previous = first_other(found + 1, left_.rend(), group);
  if (previous && !previous->is_done()) previous->gather();
}

void ShardSchedule::end_backward() {
  for (const Group& each : all_)
    if (const auto group = each.lock(); group && !group->is_running()) group->release();
}

}  // namespace coshard
