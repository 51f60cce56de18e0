#pragma once
// A device: memory, streams and events. One object per rank, owned by its World; used on the rank's
// thread. `cpu` computes when work is enqueued; other back ends queue it, and the host waits only
// where it reads.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/device/buffer.h>

#pragma GCC visibility push(default)
namespace coshard {

// The kind of a device, by name: "cpu", "cuda". A value. A back end defines its own.
class DeviceKind {
 public:
  static const DeviceKind Cpu, Cuda;
  constexpr explicit DeviceKind(const char* literal) : name_(literal) {}
  constexpr std::string_view name() const { return name_; }
  constexpr bool operator==(const DeviceKind& other) const {
    return name_.data() == other.name_.data() || name_ == other.name_;  // mostly the same literal
  }

 private:
  std::string_view name_;
};
inline constexpr DeviceKind DeviceKind::Cpu{"cpu"};
inline constexpr DeviceKind DeviceKind::Cuda{"cuda"};
constexpr std::string_view to_string(DeviceKind kind) { return kind.name(); }
DeviceKind parse_device_kind(std::string_view text);  // Error{BadInput} names the text
enum class StreamKind : std::uint8_t { Compute, Communication, Copy };

// A point on a stream. On the CPU a compute event is complete when it is recorded. Any thread.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool query() const = 0;
  // Blocks the host; Error{Timeout} past the deadline (steady clock; 0: none).
  virtual void synchronize(std::int64_t deadline_ns) = 0;
  // The stream it is on, as an identity only.
  virtual const void* stream() const { return nullptr; }
  // Whether reached_ns() gives, once the stream has reached it, when that was, by the steady clock.
  virtual bool timed() const { return false; }
  virtual std::optional<std::int64_t> reached_ns() const { return std::nullopt; }
};

// An ordered queue of work on one device.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual StreamKind kind() const = 0;
  virtual std::shared_ptr<Event> record() = 0;
  // The same with its time, where the device has a clock and no step is being recorded.
  virtual std::shared_ptr<Event> record_timed() { return record(); }
  // Orders later work after `event`, of this device or a peer; does not block the host on a GPU.
  virtual void wait(const Event& event) = 0;
  // The cudaStream_t, if any.
  virtual void* native() const { return nullptr; }
};

struct MemoryStats {
  std::size_t in_use = 0, cached = 0, peak = 0;  // bytes
};

// Something in flight that a waiting host checks, so that a wait that cannot complete can say why.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual bool over() = 0;
  // Throws the typed error if it has failed, or is stuck after a wait of `waited_ns`.
  virtual void check(std::int64_t waited_ns) = 0;
  // Whether it needs no further check though the program ends now.
  virtual bool settled() { return true; }
};

class PeerEngine;
class StreamTimes;

class Device : public std::enable_shared_from_this<Device> {
 public:
  Device();
  virtual ~Device();
  virtual DeviceKind kind() const = 0;
  virtual std::string name() const = 0;  // "cpu", "cuda:0"
  virtual std::unique_ptr<Stream> make_stream(StreamKind kind) = 0;
  virtual Stream& compute_stream() = 0;
  // 64-byte aligned (cuda: 512), for the compute stream; null for 0 bytes. Error{DeviceFailed}
  // names the size requested and the memory held.
  virtual void* allocate(std::size_t bytes) = 0;
  // `uses`: other streams' work that must be over before the memory is reused.
  virtual void deallocate(void* data, std::size_t bytes,
                          std::span<const std::shared_ptr<Event>> uses) noexcept = 0;
  // Copies host memory to the device in compute-stream order; the host memory may be reused at
  // once.
  virtual void upload(void* to, const void* host, std::size_t bytes) = 0;
  // Copies to the host; returns when the data have arrived. Fails like synchronize().
  virtual void download(void* host, const void* from, std::size_t bytes) = 0;
  // Waits until the compute stream has done everything enqueued. Error{Timeout},
  // Error{DeviceFailed}, a device-side assertion of a kernel (an index out of bounds), or the
  // failure of a collective in flight.
  virtual void synchronize() = 0;
  virtual MemoryStats memory() const = 0;
  // How collectives between ranks of one process work on this device; null: through host memory.
  virtual PeerEngine* peers() { return nullptr; }
  // Whether its work is queued, so that only the device knows when it runs.
  virtual bool queues() const { return false; }

  // A new owned buffer (bytes may be 0), and a borrowed one. Virtual so that kernels in a module of
  // their own call it without a symbol of the library.
  virtual std::shared_ptr<Buffer> make_buffer(std::size_t bytes);
  std::shared_ptr<Buffer> borrow(void* data, std::size_t bytes);

  // Deadline of each host wait, where no WaitLimit holds; 0: none.
  void set_timeout(std::int64_t ns) { timeout_ns_ = ns; }
  std::int64_t timeout_ns() const { return WaitLimit::here().value_or(timeout_ns_); }
  // How often the host has waited for the device: synchronize() and download().
  std::uint64_t host_waits() const { return host_waits_; }
  // Checked by every host wait until it is over.
  void watch(std::shared_ptr<Watched> watched);
  void check_watched(std::int64_t waited_ns);
  // At the end of a program: waits until all of it is settled, but not for a peer that comes a second
  // later. Throws what has failed. What was destroyed before is not watched any more.
  void settle();
  // What the rank's observers have yet to be told of its streams.
  StreamTimes& times() { return *times_; }

 protected:
  std::uint64_t host_waits_ = 0;

 private:
  static constexpr std::size_t kWatchedAtOnce = 64;  // beyond that, those that are over are dropped
  static constexpr std::int64_t kLongestSettlingNs = 1'000'000'000;
  std::int64_t timeout_ns_ = 0;
  std::vector<std::shared_ptr<Watched>> watched_;
  std::unique_ptr<StreamTimes> times_;
};

// `threads`: OpenMP threads that this device's kernels may use. Call it on the rank's thread.
std::shared_ptr<Device> make_cpu_device(int threads);

}  // namespace coshard
#pragma GCC visibility pop
