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

// The device fills up to kSlots slots while the host empties the oldest. After an error the slots
// that the device still fills are free once take() has seen it finish.
void StagingRing::download(void* host, const void* from, std::size_t bytes, Stream& stream,
                           std::int64_t deadline_ns) {
  const auto part = [&](std::size_t at) { return std::min(kSlotBytes, bytes - at); };
  std::size_t slot = next_, filled = 0;
  for (std::size_t at = 0; at < bytes; at += kSlotBytes, slot = (slot + 1) % kSlots) {
    for (; filled < std::min(bytes, at + kSlots * kSlotBytes); filled += kSlotBytes) {
      std::size_t next = 0;
      char* staged = take(next, deadline_ns);
      move(staged, static_cast<const char*>(from) + filled, part(filled), cudaMemcpyDeviceToHost,
           stream);
      busy_[next] = stream.record();
    }
    busy_[slot]->synchronize(deadline_ns);
    busy_[slot] = nullptr;
    std::memcpy(static_cast<char*>(host) + at, data_ + slot * kSlotBytes, part(at));
  }
}

}  // namespace coshard
