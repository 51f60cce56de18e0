#include "runtime/device/cuda/clock.h"

#include <cmath>
#include <cstdlib>

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

}  // namespace

CudaClock::CudaClock(CudaDevice& device)
    : device_(device), stream_(std::make_unique<CudaStream>(device, StreamKind::Communication)) {}

CudaClock::~CudaClock() {
  if (reference_.event != nullptr) device_.timed_events()->give(reference_.event);
}

std::optional<std::int64_t> CudaClock::since_reference(cudaEvent_t event) const {
  float ms = 0;
  const cudaError_t status = cuda().EventElapsedTime(&ms, reference_.event, event);
  if (status != cudaSuccess) {
    cuda().GetLastError();
    return std::nullopt;
  }
  return std::llround(static_cast<double>(ms) * 1e6);
}

void CudaClock::take_reference() {
  device_.make_current();
  std::int64_t shortest = kPatience;
  for (int i = 0; i < kTries; ++i) {
    const cudaEvent_t event = device_.timed_events()->take();
    const std::int64_t begin = now_ns();
    cudaError_t status = cuda().EventRecord(event, static_cast<cudaStream_t>(stream_->native()));
    while (status == cudaSuccess && (status = cuda().EventQuery(event)) == cudaErrorNotReady &&
           now_ns() - begin < kPatience)
      status = cudaSuccess;
    const std::int64_t took = now_ns() - begin;
    const bool better = status == cudaSuccess && took < shortest;
    const cudaEvent_t unused = better ? reference_.event : event;
    if (better) {
      reference_ = {event, begin + took / 2};
      shortest = took;
    }
    if (status != cudaSuccess) cuda().GetLastError();
    if (unused != nullptr) device_.timed_events()->give(unused);
  }
}

std::optional<std::int64_t> CudaClock::time_of(cudaEvent_t event) {
  const std::scoped_lock lock(mutex_);
  if (reference_.event == nullptr) take_reference();
  if (reference_.event == nullptr) return std::nullopt;
  std::optional<std::int64_t> since = since_reference(event);
  if (since && std::abs(*since) > kFresh) {
    take_reference();
    since = since_reference(event);
  }
  if (!since) return std::nullopt;
  return reference_.at + *since;
}

}  // namespace coshard
