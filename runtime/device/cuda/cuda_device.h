#pragma once
// A CUDA device of one rank. Work is queued on streams: compute (lowest priority), and one for each
// communicator (highest). The host waits only in synchronize(), download() and Event::synchronize,
// and when memory runs out or a recording begins, to return unused pool memory to the device. This
// header names no CUDA type, so that layers above may include it.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <coshard/runtime/device/cuda/cuda_options.h>
#include <coshard/runtime/device/device.h>
#include "runtime/device/device_assert.h"
#include "runtime/device/graph.h"

namespace coshard {

class CudaAllocator;
class CudaClock;
class CudaGraphs;
class CudaStream;
class EventPool;
class StagingRing;
struct CudaLaunch;

// Not final: the kernels may be in a module of their own (kernels/cuda/module), which calls what
// they need of a device through its table of virtual functions.
class CudaDevice : public Device, public GraphDevice {
 public:
  explicit CudaDevice(CudaOptions options);
  ~CudaDevice() override;
  DeviceKind kind() const override { return DeviceKind::Cuda; }
  std::string name() const override { return name_; }
  std::unique_ptr<Stream> make_stream(StreamKind kind) override;
  Stream& compute_stream() override;
  void* allocate(std::size_t bytes) override;
  void deallocate(void* data, std::size_t bytes,
                  std::span<const std::shared_ptr<Event>> uses) noexcept override;
  void upload(void* to, const void* host, std::size_t bytes) override;
  void download(void* host, const void* from, std::size_t bytes) override;
  void synchronize() override;
  MemoryStats memory() const override;
  PeerEngine* peers() override;
  bool queues() const override { return true; }
  std::unique_ptr<GraphRecording> record_graph() override;
  bool recording() const override;

  int index() const { return options_.index; }
  int multiprocessors() const { return multiprocessors_; }
  int capability() const { return capability_; }  // 90 for 9.0
  bool tf32() const { return options_.tf32; }
  // State that a higher layer keeps for this device under its key (an address it owns); null until
  // set. Destroyed before the device's memory. The rank's thread.
  std::shared_ptr<void>& extension(const void* key) { return extensions_[key]; }
  // Makes this the calling thread's current device. Queries first: the caller may have changed it,
  // and cudaGetDevice is cheaper than cudaSetDevice.
  virtual void make_current() const;
  // Lets `device` access this device's pool, existing and future allocations; enabling peer access
  // does not cover pools. Any thread.
  void allow_access(int device);
  const std::shared_ptr<EventPool>& events() const { return events_; }
  const std::shared_ptr<EventPool>& timed_events() const { return timed_events_; }
  CudaClock& clock() const { return *clock_; }
  CudaGraphs& graphs() const { return *graphs_; }
  // Where kernels report errors in their input (device_assert.h); mapped host memory.
  DeviceAssert* finding() const { return finding_; }
  // Returns cached memory to the device; the host waits for the compute stream.
  void trim();
  // Error{DeviceFailed} as CudaAllocator::fail_request.
  [[noreturn]] void fail_request(std::size_t bytes, std::string_view label, std::size_t of_graphs);
  // Throws what kernels reported, once, as Error{BadInput}.
  void check_finding();

 private:
  std::int64_t deadline() const;
  void* from_pool(std::size_t bytes);

  CudaOptions options_;
  std::string name_;
  int multiprocessors_ = 0, capability_ = 0;
  std::shared_ptr<EventPool> events_, timed_events_;
  std::unique_ptr<CudaGraphs> graphs_;
  std::unique_ptr<CudaStream> compute_;
  std::unique_ptr<CudaClock> clock_;
  std::unique_ptr<CudaAllocator> allocator_;
  std::unique_ptr<StagingRing> staging_;
  std::unique_ptr<PeerEngine> peers_;
  DeviceAssert* finding_ = nullptr;
  std::map<const void*, std::shared_ptr<void>> extensions_;
};

}  // namespace coshard
