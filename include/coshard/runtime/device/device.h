#pragma once
// A device: memory, streams and events. One object per rank, owned by its World; used on the rank's
// thread. `cpu` runs compute where it is enqueued; other back ends queue it, and the host waits
// only where it reads. Interfaces stay small.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/device/buffer.h>

namespace coshard {

enum class DeviceKind : std::uint8_t { Cpu, Cuda, Sim };
std::string_view to_string(DeviceKind kind);          // "cpu", "cuda", "sim"
DeviceKind parse_device_kind(std::string_view text);  // Error{BadInput} names the text
enum class StreamKind : std::uint8_t { Compute, Communication, Copy };

// A point on a stream. On the cpu a compute event is complete when it is recorded. Any thread.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool query() const = 0;
  // Blocks the host; Error{Timeout} past the deadline (steady clock; 0: none).
  virtual void synchronize(std::int64_t deadline_ns) = 0;
  virtual const void* stream() const { return nullptr; }  // which one it is on; an identity
};

// An ordered queue of work of one device.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual StreamKind kind() const = 0;
  virtual std::shared_ptr<Event> record() = 0;
  // Orders what follows after `event`, of this device or a peer; does not block the host on a GPU.
  virtual void wait(const Event& event) = 0;
  virtual void* native() const { return nullptr; }  // cudaStream_t
};

struct MemoryStats {
  std::size_t in_use = 0, cached = 0, peak = 0;  // bytes
};

// Something in flight that a waiting host looks after, so that a wait that will not end says why.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual bool over() = 0;
  // Throws the typed error when it has failed, or is stuck after a wait of `waited_ns`.
  virtual void check(std::int64_t waited_ns) = 0;
};

class PeerEngine;

class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "cpu", "cuda:0"
  virtual std::unique_ptr<Stream> make_stream(StreamKind kind) = 0;
  virtual Stream& compute_stream() = 0;
  // 64-byte aligned (cuda: 512), for the compute stream; null for 0 bytes. Error{DeviceFailed}
  // names the request and what is held.
  virtual void* allocate(std::size_t bytes) = 0;
  // `uses`: other streams' work that has to be over before the memory is used again.
  virtual void deallocate(void* data, std::size_t bytes,
                          std::span<const std::shared_ptr<Event>> uses) noexcept = 0;
  // Host memory into memory of the device, in the order of the compute stream; the host memory may
  // be reused at once.
  virtual void upload(void* to, const void* host, std::size_t bytes) = 0;
  // And back: returns when the data are there. Fails like synchronize().
  virtual void download(void* host, const void* from, std::size_t bytes) = 0;
  // Until the compute stream has done all that was enqueued. Error{Timeout}, Error{DeviceFailed},
  // what kernels found (an index out of range), or what is wrong with a collective in flight.
  virtual void synchronize() = 0;
  virtual MemoryStats memory() const = 0;
  // How collectives between ranks of one process work on this device; null: through host memory.
  virtual PeerEngine* peers() { return nullptr; }

  // A new owned buffer (bytes may be 0), and a borrowed one.
  std::shared_ptr<Buffer> make_buffer(std::size_t bytes);
  std::shared_ptr<Buffer> borrow(void* data, std::size_t bytes);

  // Deadline of each wait of the host; 0: none.
  void set_timeout(std::int64_t ns) { timeout_ns_ = ns; }
  std::int64_t timeout_ns() const { return timeout_ns_; }
  // How often the host has waited for the device: synchronize() and download().
  std::uint64_t host_waits() const { return host_waits_; }
  // Looked after by every wait of the host until it is over.
  void watch(std::shared_ptr<Watched> watched);
  void check_watched(std::int64_t waited_ns);

 protected:
  std::uint64_t host_waits_ = 0;

 private:
  static constexpr std::size_t kWatchedAtOnce = 64;  // then those that are over are let go
  std::int64_t timeout_ns_ = 0;
  std::vector<std::shared_ptr<Watched>> watched_;
};

// `threads`: OpenMP threads that kernels of this device may use. Must be called on the rank's
// thread.
std::shared_ptr<Device> make_cpu_device(int threads);

}  // namespace coshard
