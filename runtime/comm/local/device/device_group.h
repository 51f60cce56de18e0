#pragma once
// The part of a LocalGroup for ranks on devices with streams. Any thread.
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device/peer_engine.h"

namespace coshard {

class DeviceGroup {
 public:
  // Whether some rank is on such a device.
  bool used() const { return used_.load(std::memory_order_relaxed); }
  // Enables access between `device` and those added before, on its rank's thread.
  // Error{Unsupported} names two that cannot access each other.
  void add(const std::shared_ptr<Device>& device);
  std::mutex& queueing() { return queueing_; }

 private:
  std::atomic<bool> used_{false};
  std::mutex queueing_;  // held while queueing, so that all streams get work in one order
  std::mutex mutex_;     // guards devices_
  std::vector<std::weak_ptr<Device>> devices_;
};

}  // namespace coshard
