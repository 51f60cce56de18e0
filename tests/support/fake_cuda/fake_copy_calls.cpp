// Copies and fills. A copy may be on a stream of any device (CUDA programming guide, "Stream and
// Event Behavior"), and between devices without peer access goes through the host.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/fake_cuda/fake_calls.h"
#include "tests/support/fake_cuda/fake_pools.h"

namespace coshard::testing {
namespace {

using namespace fake_calls;

// Queues `work`; it complains if memory that it needs has been freed by the time it runs.
FakeDriver::OpRef enqueue_on(FakeDriver::Stream& stream, const char* call,
                             std::vector<FakeDriver::Allocation> needed, FakeDriver::Work work) {
  return driver().enqueue(stream, [call, needed = std::move(needed), work = std::move(work)] {
    if (!std::ranges::all_of(needed, [](const auto& memory) { return driver().alive(memory); }))
      return driver().complain(std::string(call) + " has memory that has been freed since");
    work();
  });
}

// Pageable memory has been read or written when the call returns.
cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  ENTER("MemcpyAsync");
  constexpr const char* kCall = "cudaMemcpyAsync";
  if (kind == cudaMemcpyDeviceToHost) driver().enter("Memcpy to the host");
  if (bytes == 0) return cudaSuccess;
  const int device = driver().stream(stream).device;
  for (const void* data : {static_cast<const void*>(to), from})
    check_pool_access(device, data, kCall);
  std::vector<char> snapshot;
  const auto source = driver().allocation_of(from), target = driver().allocation_of(to);
  const bool pageable = source.serial == 0;
  if (driver().stream(stream).capture != nullptr && (pageable || target.serial == 0)) {
    driver().complain("pageable memory in a captured copy");  // it would be read at each launch
    return status(cudaErrorStreamCaptureUnsupported);
  }
  if (pageable) {
    driver().enter("Memcpy of pageable memory");
    const auto* begin = static_cast<const char*>(from);
    snapshot.assign(begin, begin + bytes);
  }
  const auto op = enqueue_on(driver().queue_on(stream), kCall, {source, target},
                             [=, held = std::move(snapshot)] {
                               if (!pageable) driver().reads(kCall, from, bytes);
                               driver().writes(kCall, to, bytes);
                               std::memmove(to, pageable ? held.data() : from, bytes);
                             });
  if (target.serial != 0) return cudaSuccess;
  driver().enter("Memcpy of pageable memory");
  const bool over = driver().wait_for(op, kCall);
  if (over) driver().observe(op->clock);
  return waited(over);
}

// Unlike copies, fills require the stream's device to be current.
cudaError_t set_memory(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  ENTER("MemsetAsync");
  FakeDriver::Stream& on = driver().queue_on(stream);
  if (on.device != FakeDriver::current_device()) return status(cudaErrorInvalidResourceHandle);
  const auto target = driver().allocation_of(data);
  if (target.serial == 0 && bytes > 0) return status(cudaErrorInvalidValue);
  constexpr const char* kCall = "cudaMemsetAsync";
  enqueue_on(on, kCall, {target}, [=] {
    driver().writes(kCall, data, bytes);
    std::memset(data, value, bytes);
  });
  return cudaSuccess;
}

}  // namespace

void add_copy_calls(CudaApi& api) {
  api.MemcpyAsync = copy;
  api.MemsetAsync = set_memory;
}

}  // namespace coshard::testing
