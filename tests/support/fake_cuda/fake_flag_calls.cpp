// Streams that wait for flags and write them.
#include "tests/support/fake_cuda/fake_calls.h"

namespace coshard::testing {
namespace {

using namespace fake_calls;

// cuda.h asks for a stream of the current context, and lists no exception for these two.
bool is_foreign(const FakeDriver::Stream& stream) {
  return stream.device != FakeDriver::current_device();
}

cudaError_t wait_value(cudaStream_t stream, const std::uint64_t* at, std::uint64_t value) {
  ENTER("StreamWaitValue");
  FakeDriver::Stream& on = driver().queue_on(stream);
  if (is_foreign(on)) return status(cudaErrorInvalidResourceHandle);
  FakeDriver::Op op;
  op.waits_for = at;
  op.ready = [at, value] {
    const std::uint64_t now = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    return static_cast<std::int64_t>(now - value) >= 0;
  };
  driver().enqueue(on, std::move(op));
  return cudaSuccess;
}

cudaError_t write_value(cudaStream_t stream, std::uint32_t* at, std::uint32_t value) {
  ENTER("StreamWriteValue");
  FakeDriver::Stream& on = driver().queue_on(stream);
  if (is_foreign(on)) return status(cudaErrorInvalidResourceHandle);
  FakeDriver::Op op;
  op.writes = at;
  op.work = [at, value] { __atomic_store_n(at, value, __ATOMIC_RELEASE); };
  driver().enqueue(on, std::move(op));
  return cudaSuccess;
}

}  // namespace

void add_flag_calls(CudaApi& api) {
  api.StreamWaitValue = wait_value;
  api.StreamWriteValue = write_value;
}

}  // namespace coshard::testing
