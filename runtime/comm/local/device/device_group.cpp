#include "runtime/comm/local/device/device_group.h"

namespace coshard {

void DeviceGroup::add(const std::shared_ptr<Device>& device) {
  const std::scoped_lock lock(mutex_);
  for (const auto& known : devices_) {
    const std::shared_ptr<Device> peer = known.lock();
    if (peer == nullptr) continue;
    device->peers()->reach(*peer);
    peer->peers()->reach(*device);
  }
  device->peers()->make_current();
  devices_.push_back(device);
  used_.store(true, std::memory_order_relaxed);
}

}  // namespace coshard
