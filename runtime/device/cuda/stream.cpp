#include "runtime/device/cuda/stream.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include <coshard/runtime/error.h>
#include <coshard/runtime/observer.h>
#include "runtime/coro/frame_allocator.h"
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/clock.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/name_stream.h"

namespace coshard {
namespace {

// Backoff of host waits: spins, then yields, then sleeps between polls.
class HostWait {
 public:
  void turn() {
    const std::int64_t waited = waited_ns();
    if (waited < 20'000) return;
    if (waited < 2'000'000) {
      sched_yield();
      return;
    }
    const timespec pause{0, 100'000};
    nanosleep(&pause, nullptr);
  }
  std::int64_t waited_ns() const { return now_ns() - begin_; }

 private:
  std::int64_t begin_ = now_ns();
};

// Shared by all streams, since a destroyed stream's address may be reused.
std::uint64_t next_number() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::string_view text_of_kind(StreamKind kind) {
  switch (kind) {
    case StreamKind::Compute: return "compute";
    case StreamKind::Communication: return "communication";
    case StreamKind::Copy: return "copy";
  }
  return "stream";
}

}  // namespace

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) log_cuda(cuda().EventDestroy(event), "cudaEventDestroy");
}

cudaEvent_t EventPool::take() {
  lock_.lock();
  cudaEvent_t event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
  }
  lock_.unlock();
  if (event == nullptr) {  // created on the current device, and this thread may be a peer's
    check_cuda(cuda().SetDevice(device_), "cudaSetDevice");
    const unsigned flags = timed_ ? cudaEventDefault : cudaEventDisableTiming;
    check_cuda(cuda().EventCreateWithFlags(&event, flags), "cudaEventCreate");
  }
  return event;
}

void EventPool::give(cudaEvent_t event) noexcept {
  lock_.lock();
  free_.push_back(event);
  lock_.unlock();
}

CudaEvent::CudaEvent(std::shared_ptr<EventPool> pool, cudaStream_t stream,
                     std::weak_ptr<CudaDevice> owner, std::uint64_t recording)
    : pool_(std::move(pool)),
      stream_(stream),
      owner_(std::move(owner)),
      number_(next_number()),
      event_(pool_->take()),
      recording_(recording) {
  const cudaError_t status = cuda().EventRecord(event_, stream_);
  if (status != cudaSuccess) pool_->give(event_);
  check_cuda(status, "cudaEventRecord");
}

CudaEvent::~CudaEvent() { pool_->give(event_); }

// An event of a recording is complete once the recording ends: its work belongs to the launches. A
// recording thread may not query any event, not even of a peer's device; other threads may (capture
// is thread-local).
bool CudaEvent::query() const {
  if (CudaGraphs::recording_here()) return false;
  if (recording_ != 0) {
    const std::shared_ptr<CudaDevice> owner = owner_.lock();
    return owner == nullptr || owner->graphs().recording() != recording_;
  }
  const cudaError_t status = cuda().EventQuery(event_);
  if (status == cudaErrorNotReady) {
    cuda().GetLastError();
    return false;
  }
  check_cuda(status, "cudaEventQuery");
  return true;
}

bool CudaEvent::timed() const { return pool_->timed() && recording_ == 0 && !owner_.expired(); }

std::optional<std::int64_t> CudaEvent::reached_ns() const {
  const std::shared_ptr<CudaDevice> owner = timed() ? owner_.lock() : nullptr;
  if (owner == nullptr || CudaGraphs::recording_here()) return std::nullopt;
  return owner->clock().time_of(event_);
}

void CudaEvent::synchronize(std::int64_t deadline_ns) {
  HostWait wait;
  const std::shared_ptr<CudaDevice> owner = owner_.lock();
  if (owner != nullptr) require_not_recording(*owner, "a host wait", "wait for the device");
  while (!query()) {
    wait.turn();
    const bool late = deadline_ns != 0 && now_ns() >= deadline_ns;
    // Watched collectives know better what is late, so let them report first.
    if (owner != nullptr)
      owner->check_watched(late ? std::max(wait.waited_ns(), owner->timeout_ns())
                                : wait.waited_ns());
    if (late)
      fail(ErrorKind::Timeout,
           str_cat(owner != nullptr ? owner->name() : str_cat("cuda:", pool_->device()),
                   ": the device has not reached an event after ",
                   static_cast<double>(wait.waited_ns()) / 1e9, " s"));
  }
  // A failure also releases this wait.
  if (owner != nullptr) owner->check_watched(0);
}

CudaStream::CudaStream(CudaDevice& device, StreamKind kind, void* given)
    : device_(device), kind_(kind), owned_(given == nullptr) {
  stream_ = static_cast<cudaStream_t>(given);
  if (!owned_) {
    device.graphs().add(*this);
    return;
  }
  device.make_current();
  int lowest = 0, highest = 0;
  check_cuda(cuda().DeviceGetStreamPriorityRange(&lowest, &highest),
             "cudaDeviceGetStreamPriorityRange");
  const int priority = kind == StreamKind::Communication ? highest : lowest;
  check_cuda(cuda().StreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority),
             device.name(), ": cudaStreamCreate");
  name_stream(stream_, str_cat(device.name(), " ", text_of_kind(kind)));
  device.graphs().add(*this);
}

CudaStream::~CudaStream() {
  device_.graphs().remove(*this);
  if (owned_) log_cuda(cuda().StreamDestroy(stream_), "cudaStreamDestroy");
}

std::shared_ptr<Event> CudaStream::record() { return record_of(device_.events()); }

std::shared_ptr<Event> CudaStream::record_timed() {
  return record_of(device_.recording() ? device_.events() : device_.timed_events());
}

// The number and the position in the stream are taken atomically.
std::shared_ptr<Event> CudaStream::record_of(const std::shared_ptr<EventPool>& pool) {
  const std::uint64_t now = device_.graphs().recording();
  const std::scoped_lock lock(mutex_);
  return std::allocate_shared<CudaEvent>(
      FrameAllocator<CudaEvent>(), pool, stream_,
      std::static_pointer_cast<CudaDevice>(device_.shared_from_this()), takes_part(now) ? now : 0);
}

void CudaStream::wait(const Event& event) {
  // A stream's own events are already in order.
  if (event.stream() == stream_) return;
  const auto& recorded = dynamic_cast<const CudaEvent&>(event);
  const std::uint64_t now = device_.graphs().recording();
  // Work before a recording completes before each launch, and a recording's events mean nothing
  // after it: later work is ordered after the launches (DeviceGraph::launch).
  if (recorded.recording() != now && (recorded.recording() != 0 || takes_part(now))) return;
  if (now != 0 && recorded.recording() == now) take_part(now);
  check_cuda(cuda().StreamWaitEvent(stream_, recorded.native(), 0), "cudaStreamWaitEvent");
  if (now != 0) return;  // only recorded, not executed
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(waited_, event.stream(), &Waited::stream);
  if (found != waited_.end()) {
    found->number = std::max(found->number, recorded.number());
    return;
  }
  if (waited_.size() == kMaxWaited) waited_.clear();
  waited_.push_back({event.stream(), recorded.number()});
}

bool CudaStream::follows(const Event& event) const noexcept {
  if (event.stream() == stream_) return true;
  const auto* recorded = dynamic_cast<const CudaEvent*>(&event);
  if (recorded == nullptr) return false;
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(waited_, event.stream(), &Waited::stream);
  return found != waited_.end() && found->number >= recorded->number();
}

}  // namespace coshard
