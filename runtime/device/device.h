#pragma once
// A device: memory, streams and events. One object per rank, owned by its World; used on the rank's
// thread. `cpu` runs compute where it is enqueued; other back ends queue. Interfaces stay small
// (architecture C3).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace coshard {

class Device;

// Memory of one device. Owned through shared_ptr by tensors and by tickets in flight; freed to the
// device's cache by the last owner, on whichever thread that is (the cache is locked).
class Buffer {
 public:
  Buffer(std::shared_ptr<Device> device, void* data, std::size_t bytes, bool owned)
      : device_(std::move(device)), data_(data), bytes_(bytes), owned_(owned) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }

 private:
  std::shared_ptr<Device> device_;
  void* data_;
  std::size_t bytes_;
  bool owned_;  // false: borrowed from the caller, who keeps it alive
};

enum class DeviceKind : std::uint8_t { Cpu, Cuda, Sim };
enum class StreamKind : std::uint8_t { Compute, Communication, Copy };

// A point on a stream. On the cpu a compute event is complete when it is recorded.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool query() const = 0;
  virtual void synchronize(
      std::int64_t deadline_ns) = 0;  // blocks the host; Error{Timeout} past the deadline
};

// An ordered queue of work of one device.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual StreamKind kind() const = 0;
  virtual std::shared_ptr<Event> record() = 0;
  virtual void wait(const Event& event) = 0;  // orders what follows after `event`; does not block
                                              // the host on a GPU
};

struct MemoryStats {
  std::size_t in_use = 0, cached = 0, peak = 0;  // bytes
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "cpu", "cuda:0"
  virtual std::unique_ptr<Stream> make_stream(StreamKind kind) = 0;
  virtual Stream& compute_stream() = 0;
  virtual void* allocate(
      std::size_t bytes) = 0;  // 64-byte aligned; Error{DeviceFailed} names the request
  virtual void deallocate(void* data, std::size_t bytes) noexcept = 0;
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream& stream) = 0;
  virtual void synchronize() = 0;
  virtual MemoryStats memory() const = 0;

  // A new owned buffer (bytes may be 0), and a borrowed one.
  std::shared_ptr<Buffer> make_buffer(std::size_t bytes);
  std::shared_ptr<Buffer> borrow(void* data, std::size_t bytes);
};

// `threads`: OpenMP threads that kernels of this device may use. Must be called on the rank's
// thread.
std::shared_ptr<Device> make_cpu_device(int threads);

}  // namespace coshard
