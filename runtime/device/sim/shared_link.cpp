#include "runtime/device/sim/shared_link.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coshard {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNothing = 1e-6;  // ns; less is rounding

// The busy time left of the transfer when its next part arrives.
double left_at_next(const Transfer& t) {
  if (t.parts == 1) return 0;
  const auto arrived = static_cast<double>(t.arrivals.size());
  return t.busy * (1 - arrived / static_cast<double>(t.parts - 1));
}

bool uses_link(const Transfer& t, double now) {
  return t.ready <= now + kNothing && t.latency_left <= kNothing;
}

}  // namespace

std::shared_ptr<Transfer> SharedLink::add(const void* queue, std::int64_t ready, LinkTime time,
                                          int parts) {
  auto transfer = std::make_shared<Transfer>();
  transfer->queue = queue;
  transfer->parts = static_cast<std::size_t>(parts);
  transfer->ready = static_cast<double>(ready);
  transfer->latency_left = static_cast<double>(time.latency_ns);
  transfer->busy = transfer->busy_left = static_cast<double>(time.busy_ns);
  if (parts > 1) transfer->arrivals.push_back(ready);
  open_.push_back(transfer);
  return transfer;
}

// The first transfer of each queue.
std::vector<Transfer*> SharedLink::under_way() const {
  std::vector<Transfer*> heads;
  for (const auto& transfer : open_)
    if (std::ranges::none_of(heads, [&](Transfer* h) { return h->queue == transfer->queue; }))
      heads.push_back(transfer.get());
  return heads;
}

// Time until a transfer begins, begins to use the link, or has a part arrive.
double SharedLink::next_change(const std::vector<Transfer*>& heads) const {
  const auto users = static_cast<double>(
      std::ranges::count_if(heads, [&](Transfer* t) { return uses_link(*t, now_); }));
  double next = kNever;
  for (const Transfer* t : heads) {
    if (uses_link(*t, now_))
      next = std::min(next, (t->busy_left - left_at_next(*t)) * users);
    else if (t->ready <= now_ + kNothing)
      next = std::min(next, t->latency_left);
    else
      next = std::min(next, t->ready - now_);
  }
  return std::max(next, 0.0);
}

void SharedLink::pass(const std::vector<Transfer*>& heads, double ns) {
  const auto users = static_cast<double>(
      std::ranges::count_if(heads, [&](Transfer* t) { return uses_link(*t, now_); }));
  for (Transfer* t : heads) {
    if (uses_link(*t, now_))
      t->busy_left = std::max(0.0, t->busy_left - ns / users);
    else if (t->ready <= now_ + kNothing)
      t->latency_left = std::max(0.0, t->latency_left - ns);
  }
  now_ += ns;
  for (Transfer* t : heads) {
    if (t->ready > now_ + kNothing) continue;
    while (uses_link(*t, now_) && !t->arrived(t->parts - 1) &&
           t->busy_left <= left_at_next(*t) + kNothing)
      t->arrivals.push_back(std::llround(now_));
  }
  std::erase_if(open_, [](const auto& t) { return t->arrived(t->parts - 1); });
}

// Advances to the next change, or to `limit` if that is earlier. False: `limit` is reached.
bool SharedLink::step(double limit) {
  const std::vector<Transfer*> heads = under_way();
  const double next = heads.empty() ? kNever : next_change(heads);
  if (now_ + next > limit) {
    if (limit > now_ && limit < kNever) pass(heads, limit - now_);
    return false;
  }
  pass(heads, next);
  return true;
}

void SharedLink::advance(std::int64_t now) {
  while (step(static_cast<double>(now))) {
  }
}

std::int64_t SharedLink::wait_for(const Transfer& transfer, std::size_t part) {
  while (!transfer.arrived(part)) step(kNever);
  return transfer.arrivals[part];
}

}  // namespace coshard
