#include "runtime/comm/local/swap_watch.h"

#include <algorithm>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

bool same_line(const CallSite& a, const CallSite& b) {
  return a.line == b.line && (a.file == b.file || file_name_of(a) == file_name_of(b));
}

std::uint64_t distance(std::uint64_t a, std::uint64_t b) { return a < b ? b - a : a - b; }

}  // namespace

std::string SwapWatch::look_at(std::uint64_t sequence, std::uint64_t call, int rank,
                               const Collective& first, const Collective& its) {
  const Difference now{sequence, call, Call(first), Call(its)};
  const bool places = !same_line(first.where, its.where);
  const bool data = first.origin != its.origin && first.origin != 0 && its.origin != 0;
  if (!places && !data) return "";  // the file's name is elsewhere in another process
  const std::scoped_lock lock(mutex_);
  const auto at = static_cast<std::size_t>(rank);
  if (by_rank_.size() <= at) by_rank_.resize(at + 1);
  std::deque<Difference>& seen = by_rank_[at];
  while (!seen.empty() && distance(seen.front().sequence, sequence) >= kWindow) seen.pop_front();
  const Difference* of_first = nullptr;  // where `rank` made the call that rank 0 makes now
  const Difference* of_its = nullptr;    // where rank 0 made the call that `rank` makes now
  for (const Difference& before : seen) {
    if (before.call != call || distance(before.sequence, sequence) >= kWindow) continue;
    if (data && before.first.origin == now.its.origin && before.its.origin == now.first.origin)
      return str_cat("; each passes what the other passed to #", before.sequence,
                     ", so one of them has swapped the two");
    if (!places) continue;
    if (same_line(before.its.where, first.where)) of_first = &before;
    if (same_line(before.first.where, its.where)) of_its = &before;
  }
  seen.push_back(now);
  if (of_first == nullptr || of_its == nullptr) return "";
  return str_cat("; each makes a call that the other has made before (#", of_its->sequence,
                 of_first == of_its ? std::string() : str_cat(" and #", of_first->sequence),
                 "), so one of them has swapped the two");
}

}  // namespace coshard
