#pragma once
// What a LocalGroup holds when its ranks are on devices that queue their work. Any thread.
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
  // Brings the device of one rank and those of the ranks that came before within reach of each
  // other, on the thread of that rank. Error{Unsupported} names two that are not.
  void add(const std::shared_ptr<Device>& device);
  std::mutex& queueing() { return queueing_; }

 private:
  std::atomic<bool> used_{false};
  std::mutex queueing_;  // held while work is queued, so that the streams get it in one order
  std::mutex mutex_;     // the one below
  std::vector<std::weak_ptr<Device>> devices_;
};

}  // namespace coshard
