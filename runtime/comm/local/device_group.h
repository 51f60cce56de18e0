#pragma once
// What a LocalGroup holds when its ranks are on devices that queue their work. Any thread.
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/comm/local/lane.h"

namespace coshard {

class DeviceGroup {
 public:
  // Some rank is on such a device.
  bool used() const { return used_.load(std::memory_order_relaxed); }
  // Kept until the group ends: work is queued on it for ranks that have left.
  void add(std::shared_ptr<Lane> lane);
  void release() noexcept;  // of all lanes, now and later
  std::mutex& queueing() { return queueing_; }

 private:
  std::atomic<bool> used_{false};
  std::mutex queueing_;  // held while work is queued, so that each lane gets it in one order
  std::mutex mutex_;     // the two below
  std::vector<std::shared_ptr<Lane>> lanes_;
  bool released_ = false;
};

}  // namespace coshard
