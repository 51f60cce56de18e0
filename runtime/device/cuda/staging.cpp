#include "runtime/device/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"

namespace coshard {
namespace {

void move(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, Stream& stream) {
  check_cuda(cuda().MemcpyAsync(to, from, bytes, kind, static_cast<cudaStream_t>(stream.native())),
             "cudaMemcpyAsync");
}

}  // namespace

StagingRing::StagingRing() {
  void* pinned = nullptr;
  check_cuda(cuda().HostAlloc(&pinned, kSlots * kSlotBytes, cudaHostAllocPortable),
             "cudaHostAlloc of the staging ring");
  data_ = static_cast<char*>(pinned);
}

StagingRing::~StagingRing() { log_cuda(cuda().FreeHost(data_), "cudaFreeHost"); }

char* StagingRing::take(std::size_t& slot, std::int64_t deadline_ns) {
  slot = next_;
  next_ = (next_ + 1) % kSlots;
  if (busy_[slot] != nullptr) busy_[slot]->synchronize(deadline_ns);
  busy_[slot] = nullptr;
  return data_ + slot * kSlotBytes;
}

void StagingRing::upload(void* to, const void* host, std::size_t bytes, Stream& stream,
                         std::int64_t deadline_ns) {
  for (std::size_t at = 0; at < bytes; at += kSlotBytes) {
    const std::size_t part = std::min(kSlotBytes, bytes - at);
    std::size_t slot = 0;
    char* staged = take(slot, deadline_ns);
    std::memcpy(staged, static_cast<const char*>(host) + at, part);
    move(static_cast<char*>(to) + at, staged, part, cudaMemcpyHostToDevice, stream);
    busy_[slot] = stream.record();
  }
}

void StagingRing::download(void* host, const void* from, std::size_t bytes, Stream& stream,
                           std::int64_t deadline_ns) {
  for (std::size_t at = 0; at < bytes; at += kSlotBytes) {
    const std::size_t part = std::min(kSlotBytes, bytes - at);
    std::size_t slot = 0;
    char* staged = take(slot, deadline_ns);
    move(staged, static_cast<const char*>(from) + at, part, cudaMemcpyDeviceToHost, stream);
    stream.record()->synchronize(deadline_ns);
    std::memcpy(static_cast<char*>(host) + at, staged, part);
  }
}

}  // namespace coshard
