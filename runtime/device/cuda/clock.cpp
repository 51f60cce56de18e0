#include "runtime/device/cuda/clock.h"

#include <cmath>
#include <utility>

#include <coshard/runtime/error.h>
#include <coshard/runtime/observer.h>
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/stream.h"

namespace coshard {
namespace {

// How long the host looks for a reference event. Streams may share a hardware queue, so it may be
// behind other work; then the old reference stays.
constexpr std::int64_t kPatience = 5'000'000;
constexpr int kTries = 3;  // of which the fastest counts

// Whether the device reached it in time.
bool comes(cudaEvent_t event, std::int64_t begin) {
  for (;;) {
    const cudaError_t status = cuda().EventQuery(event);
    if (status == cudaSuccess) return true;
    if (status != cudaErrorNotReady) check_cuda(status, "cudaEventQuery");
    cuda().GetLastError();
    if (now_ns() - begin > kPatience) return false;
  }
}

}  // namespace

void CudaClock::Destroy::operator()(cudaStream_t stream) const {
  log_cuda(cuda().StreamDestroy(stream), "cudaStreamDestroy");
}

CudaClock::CudaClock(CudaDevice& device) : device_(device) {
  cudaStream_t stream = nullptr;
  check_cuda(cuda().StreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), device.name(),
             ": cudaStreamCreate");
  stream_.reset(stream);
  take_reference();
}

CudaClock::~CudaClock() {
  if (reference_.event != nullptr) device_.timed_events()->give(reference_.event);
}

void CudaClock::take_reference() {
  device_.make_current();
  std::int64_t shortest = kPatience;
  for (int i = 0; i < kTries; ++i) {
    Reference next{device_.timed_events()->take()};
    const std::int64_t begin = now_ns();
    try {
      check_cuda(cuda().EventRecord(next.event, stream_.get()), "cudaEventRecord");
      const bool came = comes(next.event, begin);
      const std::int64_t took = now_ns() - begin;
      if (came && took < shortest) {
        next.at = begin + took / 2;
        std::swap(reference_, next);
        shortest = took;
      }
    } catch (...) {
      device_.timed_events()->give(next.event);
      throw;
    }
    if (next.event != nullptr) device_.timed_events()->give(next.event);
  }
}

// A device that fails here tells it at the next wait.
void CudaClock::renew() {
  const std::int64_t now = now_ns();
  const bool fresh = reference_.event != nullptr && now - reference_.at < kFresh;
  if (fresh || now - tried_ns_ < kPause) return;
  try {
    take_reference();
  } catch (const Error&) {
  }
  tried_ns_ = now_ns();
}

std::optional<std::int64_t> CudaClock::time_of(cudaEvent_t event) {
  const std::scoped_lock lock(mutex_);
  renew();
  if (reference_.event == nullptr) return std::nullopt;
  float ms = 0;
  if (cuda().EventElapsedTime(&ms, reference_.event, event) != cudaSuccess) {
    cuda().GetLastError();
    return std::nullopt;
  }
  return reference_.at + std::llround(static_cast<double>(ms) * 1e6);
}

}  // namespace coshard
