#include <coshard/runtime/device/device.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <coshard/runtime/error.h>
#include "runtime/coro/frame_allocator.h"
#include "runtime/device/stream_times.h"

namespace coshard {

Buffer::~Buffer() {
  if (owned_ && device_) device_->deallocate(data_, bytes_, uses_);
}

// Events of one stream do not arrive in stream order: work issued last may be dropped first. So an
// earlier event is forgotten only once it is complete.
void Buffer::used_until(std::shared_ptr<Event> event) {
  if (!owned_) return;
  const auto forgotten = [&](const std::shared_ptr<Event>& known) {
    if (known == event) return true;
    try {
      return known->stream() == event->stream() && known->query();
    } catch (const Error&) {  // a wait for this device gets the error from its own query
      return false;
    }
  };
  // Queries the driver without the lock.
  lock_.lock();
  std::vector<std::shared_ptr<Event>> uses = std::exchange(uses_, {});
  lock_.unlock();
  std::erase_if(uses, forgotten);
  uses.push_back(std::move(event));
  lock_.lock();
  uses_.insert(uses_.end(), uses.begin(), uses.end());
  lock_.unlock();
}

Device::Device() : times_(std::make_unique<StreamTimes>()) {}
Device::~Device() = default;

std::shared_ptr<Buffer> Device::make_buffer(std::size_t bytes) {
  // Nothing is accessed there, but offsets are added to it, so a null pointer would not do.
  alignas(64) static char nowhere[64];
  if (bytes == 0) return std::make_shared<Buffer>(shared_from_this(), nowhere, 0, false);
  return std::allocate_shared<Buffer>(FrameAllocator<Buffer>(), shared_from_this(), allocate(bytes),
                                      bytes, true);
}

std::shared_ptr<Buffer> Device::borrow(void* data, std::size_t bytes) {
  return std::make_shared<Buffer>(shared_from_this(), data, bytes, false);
}

// They end in roughly the order they began, so checking the oldest suffices and is cheap.
void Device::watch(std::shared_ptr<Watched> watched) {
  if (watched_.size() >= kWatchedAtOnce) {
    const auto alive = std::ranges::find_if(watched_, [](const auto& w) { return !w->over(); });
    watched_.erase(watched_.begin(), alive);
  }
  watched_.push_back(std::move(watched));
}

void Device::settle() {
  for (const auto& known : watched_) {
    const std::int64_t until = now_ns() + kLongestSettlingNs;
    while (!known->over() && !known->settled() && now_ns() < until) {
      known->check(0);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

void Device::check_watched(std::int64_t waited_ns) {
  std::erase_if(watched_, [](const auto& known) { return known->over(); });
  for (const auto& known : watched_) known->check(waited_ns);
}

}  // namespace coshard
