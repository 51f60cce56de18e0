#include "runtime/device/stream_times.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace coshard {
namespace {

bool are_timed(const std::shared_ptr<Event>& begin, const std::shared_ptr<Event>& end) {
  return begin != nullptr && end != nullptr && begin->timed() && end->timed();
}

}  // namespace

void StreamTimes::ran(const CommEvent& event, std::shared_ptr<Event> begin,
                      std::shared_ptr<Event> end) {
  add(What::Ran, event, 0, std::move(begin), std::move(end));
}

void StreamTimes::stalled(const CommEvent& event, std::shared_ptr<Event> reached,
                          std::shared_ptr<Event> end) {
  add(What::Stalled, event, 0, std::move(reached), std::move(end));
}

void StreamTimes::kernel(std::shared_ptr<Event> begin, std::shared_ptr<Event> end) {
  Observer* watching = observer();
  if (watching == nullptr || !are_timed(begin, end)) return;
  watching->queued(++kernels_);
  add(What::Kernel, {}, kernels_, std::move(begin), std::move(end));
}

void StreamTimes::add(What what, const CommEvent& event, std::uint64_t kernel,
                      std::shared_ptr<Event> begin, std::shared_ptr<Event> end) {
  if (observer() == nullptr || !are_timed(begin, end)) return;
  spans_.push_back({what, event, std::string(event.communicator), std::string(event.label), kernel,
                    std::move(begin), std::move(end)});
  if (spans_.size() >= kMany) tell();
}

void StreamTimes::tell(Observer& observer, Span& span, std::int64_t begin, std::int64_t end) {
  end = std::max(begin, end);  // by another reference of the clock, or a wait for what had ended
  span.event.communicator = span.communicator;
  span.event.label = span.label;
  switch (span.what) {
    case What::Ran: return observer.ran(span.event, begin, end);
    case What::Stalled: return observer.stalled(span.event, begin, end);
    case What::Kernel: return observer.kernel_ran(span.kernel, begin, end);
  }
}

void StreamTimes::tell() {
  while (!spans_.empty()) {
    Span& next = spans_.front();
    const bool lost = !are_timed(next.begin, next.end);  // its device is gone
    const std::optional<std::int64_t> end = next.end->reached_ns(),
                                      begin = next.begin->reached_ns();
    if (!lost && (!begin || !end)) return;
    Span span = std::move(next);
    spans_.pop_front();
    if (Observer* watching = observer(); watching != nullptr && !lost)
      tell(*watching, span, *begin, *end);
  }
}

}  // namespace coshard
