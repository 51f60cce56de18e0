#pragma once
// Streams and events of a CUDA device. Events are pooled: most are without timing, and only order
// streams and are polled by the host.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/spin_lock.h>

namespace coshard {

class CudaDevice;

// The events of one device; owned by it and by the events in use. Any thread.
class EventPool {
 public:
  EventPool(int device, bool timed) : device_(device), timed_(timed) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  cudaEvent_t take();
  void give(cudaEvent_t event) noexcept;
  int device() const { return device_; }
  bool timed() const { return timed_; }

 private:
  int device_;
  bool timed_;
  SpinLock lock_;
  std::vector<cudaEvent_t> free_;
};

class CudaEvent final : public Event {
 public:
  // Recorded on `stream` now. `owner`: the device whose watched collectives host waits check; may
  // be null. `recording`: the recording it belongs to (graph.h), in which case the host cannot
  // query it; 0: none.
  CudaEvent(std::shared_ptr<EventPool> pool, cudaStream_t stream, std::weak_ptr<CudaDevice> owner,
            std::uint64_t recording = 0);
  ~CudaEvent() override;
  bool query() const override;
  void synchronize(std::int64_t deadline_ns) override;
  const void* stream() const override { return stream_; }
  bool timed() const override;
  std::optional<std::int64_t> reached_ns() const override;
  cudaEvent_t native() const { return event_; }
  // Larger than that of every earlier event of its stream.
  std::uint64_t number() const { return number_; }
  std::uint64_t recording() const { return recording_; }

 private:
  std::shared_ptr<EventPool> pool_;
  cudaStream_t stream_;
  std::weak_ptr<CudaDevice> owner_;
  std::uint64_t number_;
  cudaEvent_t event_;
  std::uint64_t recording_;
};

class CudaStream final : public Stream {
 public:
  // Compute streams have the lowest priority, communication streams the highest. `given`: the
  // caller's stream, which is not destroyed.
  CudaStream(CudaDevice& device, StreamKind kind, void* given = nullptr);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  StreamKind kind() const override { return kind_; }
  std::shared_ptr<Event> record() override;
  std::shared_ptr<Event> record_timed() override;
  void wait(const Event& event) override;
  void* native() const override { return stream_; }
  // Whether work queued from now on is known to run after `event`, judging by this stream's waits.
  // Any thread.
  bool follows(const Event& event) const noexcept;
  // Work queued on it becomes part of that recording, while it lasts.
  void take_part(std::uint64_t recording) { recording_ = recording; }
  bool takes_part(std::uint64_t recording) const { return recording_ == recording; }

 private:
  struct Waited {
    const void* stream;
    std::uint64_t number;  // of the latest event of it that this stream has waited for
  };
  static constexpr std::size_t kMaxWaited = 64;  // then the list is cleared
  std::shared_ptr<Event> record_of(const std::shared_ptr<EventPool>& pool);
  CudaDevice& device_;
  StreamKind kind_;
  bool owned_;
  cudaStream_t stream_ = nullptr;
  mutable std::mutex mutex_;  // guards record() and waited_
  std::vector<Waited> waited_;
  std::uint64_t recording_ = 0;  // the last one it took part in
};

}  // namespace coshard
