#pragma once
// Memory of one device. Owned through shared_ptr by tensors and by work handles; freed to the
// device's cache by the last owner, on whichever thread that is (the cache is locked).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <coshard/runtime/spin_lock.h>

namespace coshard {

class Device;
class Event;
class WorkState;

class Buffer {
 public:
  // Owned: given back to `device` at its end; null: it is part of what owns this too.
  Buffer(std::shared_ptr<Device> device, void* data, std::size_t bytes, bool owned)
      : device_(std::move(device)), data_(data), bytes_(bytes), owned_(owned) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }
  bool owned() const noexcept { return owned_; }
  // A stream other than the device's compute stream uses the memory until `event`; so long it is
  // not given to others. Later events of a stream replace earlier ones. Any thread.
  void used_until(std::shared_ptr<Event> event);

  // How often the memory was written to after it was made, and the last of these writes that a
  // gradient flows through. Counted by the owners, on one thread.
  std::uint32_t writes = 0, taped_write = 0;
  // What may still read the memory: who writes to it waits for that first. On the owners' thread.
  // The first of them, mostly the only one, needs no memory of its own.
  std::weak_ptr<WorkState> reader;
  std::vector<std::weak_ptr<WorkState>> more_readers;

 private:
  std::shared_ptr<Device> device_;
  void* data_;
  std::size_t bytes_;
  bool owned_;  // false: borrowed from the caller, who keeps it alive
  SpinLock lock_;
  std::vector<std::shared_ptr<Event>> uses_;  // one per stream; under the lock
};

}  // namespace coshard
