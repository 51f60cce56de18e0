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
  // Some rank is on such a device.
  bool used() const { return used_.load(std::memory_order_relaxed); }
  // Enables access between one rank's device and those of the ranks that came before, on that
  // rank's thread. Error{Unsupported} names two that cannot reach each other.
  void add(const std::shared_ptr<Device>& device);
  std::mutex& queueing() { return queueing_; }

 private:
  std::atomic<bool> used_{false};
  std::mutex queueing_;  // held while work is queued, so that the streams get it in one order
  std::mutex mutex_;     // the one below
  std::vector<std::weak_ptr<Device>> devices_;
};

}  // namespace coshard
