#pragma once
// Memory of one device. Shared by tensors and work handles; the last owner returns it to the
// device's cache, on any thread (the cache is locked).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <coshard/runtime/spin_lock.h>

#pragma GCC visibility push(default)
namespace coshard {

class Device;
class Event;
class WorkState;

class Buffer {
 public:
  // `owned`: the destructor returns the memory to `device`. Null `device`: the owner of this buffer
  // owns the memory too.
  Buffer(std::shared_ptr<Device> device, void* data, std::size_t bytes, bool owned)
      : device_(std::move(device)), data_(data), bytes_(bytes), owned_(owned) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }
  bool owned() const noexcept { return owned_; }
  // Registers that a stream other than the device's compute stream uses the memory until `event`,
  // and that it must not be reused earlier. In any order; completed events of the same stream are
  // dropped. Any thread.
  void used_until(std::shared_ptr<Event> event);

  // How often the memory has been written to since it was created, and the last of these writes
  // that a gradient flows through. Counted by the owners, on one thread.
  std::uint32_t writes = 0, taped_write = 0;
  // What may still read the memory: writers wait for it first. On the owners' thread. The first
  // one, usually the only one, needs no allocation.
  std::weak_ptr<WorkState> reader;
  std::vector<std::weak_ptr<WorkState>> more_readers;

 private:
  std::shared_ptr<Device> device_;
  void* data_;
  std::size_t bytes_;
  bool owned_;  // false: borrowed from the caller, who keeps it alive
  SpinLock lock_;
  std::vector<std::shared_ptr<Event>> uses_;  // under the lock
};

}  // namespace coshard
#pragma GCC visibility pop
