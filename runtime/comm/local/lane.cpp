#include "runtime/comm/local/lane.h"

#include <limits>

namespace coshard {

Lane::Lane(std::shared_ptr<Device> device)
    : device_(std::move(device)), stream_(device_->make_stream(StreamKind::Communication)) {
  flags_.push_back(engine().make_flag());
}

Lane::~Lane() {
  if (written_in_all_ < taken_in_all_) release();
}

Marks Lane::take(std::uint32_t count) {
  const std::scoped_lock lock(mutex_);
  if (taken_ > std::numeric_limits<std::uint32_t>::max() - count) {
    flags_.push_back(engine().make_flag());
    if (released_) flags_.back()->release();
    taken_ = 0;
  }
  Marks marks{flags_.back(), taken_, taken_ + count};
  taken_ += count;
  taken_in_all_ += count;
  return marks;
}

void Lane::write_last(const Marks& marks) {
  marks.flag->write(*stream_, marks.last);
  written_in_all_ += marks.last - marks.first;
}

void Lane::release() noexcept {
  const std::scoped_lock lock(mutex_);
  released_ = true;
  for (const auto& flag : flags_) flag->release();
}

}  // namespace coshard
