#include "runtime/comm/local/device_group.h"

namespace coshard {

void DeviceGroup::add(std::shared_ptr<Lane> lane) {
  const std::scoped_lock lock(mutex_);
  if (released_) lane->release();
  lanes_.push_back(std::move(lane));
  used_.store(true, std::memory_order_relaxed);
}

void DeviceGroup::release() noexcept {
  const std::scoped_lock lock(mutex_);
  released_ = true;
  for (const auto& lane : lanes_) lane->release();
}

}  // namespace coshard
