#pragma once
// Streams and events of a CUDA device. Events are pooled, without timing: they order streams and
// are polled by the host, nothing else.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/spin_lock.h>

namespace coshard {

class CudaDevice;

// Of one device; owned by it and by the events that are out. Any thread.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  cudaEvent_t take();
  void give(cudaEvent_t event) noexcept;
  int device() const { return device_; }

 private:
  int device_;
  SpinLock lock_;
  std::vector<cudaEvent_t> free_;
};

class CudaEvent final : public Event {
 public:
  // Recorded on `stream` now. `owner`: whose host waits look after collectives; may be null.
  // `recording`: the recording that it is a point of (graph.h), which no host can ask about; 0:
  // none.
  CudaEvent(std::shared_ptr<EventPool> pool, cudaStream_t stream, std::weak_ptr<CudaDevice> owner,
            std::uint64_t recording = 0);
  ~CudaEvent() override;
  bool query() const override;
  void synchronize(std::int64_t deadline_ns) override;
  const void* stream() const override { return stream_; }
  cudaEvent_t native() const { return event_; }
  // Larger than those of all events that its stream recorded before.
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
  // Compute streams have the lowest priority, communication the highest. `given`: the caller's
  // own stream, which is not destroyed.
  CudaStream(CudaDevice& device, StreamKind kind, void* given = nullptr);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  StreamKind kind() const override { return kind_; }
  std::shared_ptr<Event> record() override;
  void wait(const Event& event) override;
  void* native() const override { return stream_; }
  // Whether what is queued from now on comes after `event`, as far as waits of this stream tell.
  // Any thread.
  bool follows(const Event& event) const noexcept;
  // What it is given is part of that recording, as long as it lasts.
  void take_part(std::uint64_t recording) { recording_ = recording; }
  bool takes_part(std::uint64_t recording) const { return recording_ == recording; }

 private:
  struct Waited {
    const void* stream;
    std::uint64_t number;  // up to which this stream has waited for it
  };
  static constexpr std::size_t kMaxWaited = 64;  // then they are forgotten
  CudaDevice& device_;
  StreamKind kind_;
  bool owned_;
  cudaStream_t stream_ = nullptr;
  mutable std::mutex mutex_;  // recording, and the one below
  std::vector<Waited> waited_;
  std::uint64_t recording_ = 0;  // the last that it took part in
};

}  // namespace coshard
