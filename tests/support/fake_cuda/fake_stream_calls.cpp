// Streams and events. Which device must be current: CUDA programming guide, "Stream and Event
// Behavior" of multi-device systems.
#include "tests/support/fake_cuda/fake_calls.h"
#include "tests/support/fake_cuda/fake_graphs.h"

namespace coshard::testing {
namespace {

using namespace fake_calls;

struct FakeEvent {
  int device = 0;
  bool timed = false;
  FakeDriver::OpRef op;  // null: never recorded, which counts as complete
};

FakeEvent& event_of(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }

cudaError_t event_create(cudaEvent_t* event, unsigned flags) {
  ENTER("EventCreateWithFlags");
  const bool timed = (flags & cudaEventDisableTiming) == 0;
  *event =
      reinterpret_cast<cudaEvent_t>(new FakeEvent{FakeDriver::current_device(), timed, nullptr});
  return cudaSuccess;
}

// cuda_runtime_api.h: both must have been recorded, and created with timing; it does not wait.
cudaError_t event_elapsed_time(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  ENTER("EventElapsedTime");
  const FakeDriver::OpRef from = event_of(begin).op, to = event_of(end).op;
  const bool timed = event_of(begin).timed && event_of(end).timed;
  if (!timed || from == nullptr || to == nullptr || event_of(begin).device != event_of(end).device)
    return status(cudaErrorInvalidResourceHandle);
  if (const int error = fake_graphs::ask(to); error != 0) return status(error);
  const auto held = driver().lock();
  if (!from->done || !to->done) return status(cudaErrorNotReady);
  *ms = static_cast<float>(to->done_ns - from->done_ns) / 1e6F;
  return cudaSuccess;
}

cudaError_t event_destroy(cudaEvent_t event) {
  ENTER("EventDestroy");
  delete &event_of(event);
  return cudaSuccess;
}

// The guide: it fails when event and stream are of different devices, whichever is current.
cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
  ENTER("EventRecord");
  FakeDriver::Stream& on = driver().queue_on(stream);
  if (event_of(event).device != on.device) return status(cudaErrorInvalidResourceHandle);
  event_of(event).op = driver().enqueue(on, FakeDriver::Work());
  return cudaSuccess;
}

cudaError_t event_query(cudaEvent_t event) {
  ENTER("EventQuery");
  const FakeDriver::OpRef op = event_of(event).op;
  if (op == nullptr) return cudaSuccess;
  if (const int error = fake_graphs::ask(op); error != 0) return status(error);
  const auto held = driver().lock();
  if (!op->done && (driver().patient() || !driver().force(op))) return status(cudaErrorNotReady);
  driver().observe(op->clock);
  return cudaSuccess;
}

// It may wait: creation blocks while a kernel runs that waits (yaksa#228).
cudaError_t stream_create(cudaStream_t* stream, unsigned, int priority) {
  ENTER("StreamCreateWithPriority");
  const int device = FakeDriver::current_device();
  if (!driver().may_wait_for_device(device, "cudaStreamCreateWithPriority"))
    return status(cudaErrorTimeout);
  *stream = reinterpret_cast<cudaStream_t>(driver().make_stream(device, priority));
  return cudaSuccess;
}

// cuda_runtime_api.h: returns at once, and the stream is deleted once its work is done.
cudaError_t stream_destroy(cudaStream_t stream) {
  ENTER("StreamDestroy");
  driver().destroy(driver().stream(stream));
  return cudaSuccess;
}

cudaError_t stream_query(cudaStream_t stream) {
  ENTER("StreamQuery");
  const auto held = driver().lock();
  const auto last = driver().last_of(driver().stream(stream));
  if (last != nullptr && (driver().patient() || !driver().force(last)))
    return status(cudaErrorNotReady);
  driver().observe(driver().stream(stream).clock);
  return cudaSuccess;
}

cudaError_t stream_synchronize(cudaStream_t stream) {
  ENTER("StreamSynchronize");
  FakeDriver::Stream& on = driver().stream(stream);
  const bool over = driver().wait_for(driver().last_of(on), "cudaStreamSynchronize");
  if (over) driver().observe(on.clock);
  return waited(over);
}

// The guide: stream and event may be of different devices.
cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTER("StreamWaitEvent");
  if (event_of(event).op == nullptr) return cudaSuccess;
  FakeDriver::Stream& on = driver().queue_on(stream);
  const int captured = fake_graphs::wait(on, event_of(event).op);
  if (captured != fake_graphs::kEager) return status(captured);
  FakeDriver::Op op;
  op.after = {event_of(event).op};
  driver().enqueue(on, std::move(op));
  return cudaSuccess;
}

}  // namespace

void add_stream_calls(CudaApi& api) {
  api.EventCreateWithFlags = event_create;
  api.EventDestroy = event_destroy;
  api.EventElapsedTime = event_elapsed_time;
  api.EventQuery = event_query;
  api.EventRecord = event_record;
  api.StreamCreateWithPriority = stream_create;
  api.StreamDestroy = stream_destroy;
  api.StreamQuery = stream_query;
  api.StreamSynchronize = stream_synchronize;
  api.StreamWaitEvent = stream_wait_event;
}

}  // namespace coshard::testing
