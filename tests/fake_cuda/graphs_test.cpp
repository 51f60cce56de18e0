// The fake driver's errors for captures that a real driver would reject, and graphs of a device.
#include "runtime/device/graph.h"

#include <set>
#include <thread>

#include "runtime/device/cuda/api.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

// Raw streams and events on the fake driver.
struct Raw {
  Raw() {
    cuda().SetDevice(0);
    for (cudaStream_t* stream : {&origin, &other})
      cuda().StreamCreateWithPriority(stream, cudaStreamNonBlocking, 0);
    for (cudaEvent_t* event : {&fork, &join})
      cuda().EventCreateWithFlags(event, cudaEventDisableTiming);
  }
  ~Raw() {
    for (cudaStream_t stream : {origin, other}) cuda().StreamDestroy(stream);
    for (cudaEvent_t event : {fork, join}) cuda().EventDestroy(event);
  }
  cudaError_t begin() const {
    return cuda().StreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal);
  }
  cudaError_t end() const {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cuda().StreamEndCapture(origin, &graph);
    EXPECT_EQ(status == cudaSuccess, graph != nullptr);
    if (graph != nullptr) cuda().GraphDestroy(graph);
    return status;
  }
  cudaStream_t origin{}, other{};
  cudaEvent_t fork{}, join{};
};

TEST(FakeGraphs, RefuseAStreamThatWasForkedAndNotJoined) {
  const Raw raw;
  void* data = nullptr;
  cuda().Malloc(&data, 64);
  for (const bool joins : {false, true}) {
    ASSERT_EQ(raw.begin(), cudaSuccess);
    cuda().EventRecord(raw.fork, raw.origin);
    EXPECT_EQ(cuda().StreamWaitEvent(raw.other, raw.fork, 0), cudaSuccess);
    cuda().MemsetAsync(data, 0, 64, raw.other);
    cuda().EventRecord(raw.join, raw.other);
    if (joins) cuda().StreamWaitEvent(raw.origin, raw.join, 0);
    EXPECT_EQ(raw.end(), joins ? cudaSuccess : cudaErrorStreamCaptureUnjoined);
  }
  cuda().Free(data);
}

TEST(FakeGraphs, RefuseAWaitForWhatWasRecordedBefore) {
  const Raw raw;
  cuda().EventRecord(raw.fork, raw.other);
  ASSERT_EQ(raw.begin(), cudaSuccess);
  EXPECT_EQ(cuda().StreamWaitEvent(raw.origin, raw.fork, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(raw.end(), cudaErrorStreamCaptureInvalidated);
}

TEST(FakeGraphs, RefuseQuestionsAboutCapturedEventsAlsoAfterwards) {
  const Raw raw;
  ASSERT_EQ(raw.begin(), cudaSuccess);
  cuda().EventRecord(raw.fork, raw.origin);
  EXPECT_NE(cuda().EventQuery(raw.fork), cudaSuccess);
  EXPECT_EQ(raw.end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cuda().EventQuery(raw.fork), cudaErrorCapturedEvent);
  EXPECT_EQ(cuda().StreamWaitEvent(raw.other, raw.fork, 0), cudaErrorCapturedEvent);
}

TEST(FakeGraphs, RefuseUnsafeCallsOfTheCapturingThreadUnlessItIsRelaxed) {
  const Raw raw;
  void* data = nullptr;
  ASSERT_EQ(raw.begin(), cudaSuccess);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cuda().ThreadExchangeStreamCaptureMode(&mode);
  EXPECT_EQ(cuda().Malloc(&data, 64), cudaSuccess);
  cuda().ThreadExchangeStreamCaptureMode(&mode);
  std::thread watchdog([&] { EXPECT_EQ(cuda().EventQuery(raw.join), cudaSuccess); });
  watchdog.join();
  EXPECT_EQ(raw.end(), cudaSuccess);
  for (const bool wait : {false, true}) {
    ASSERT_EQ(raw.begin(), cudaSuccess);
    EXPECT_EQ(wait ? cuda().StreamSynchronize(raw.origin) : cuda().Malloc(&data, 64),
              cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(raw.end(), cudaErrorStreamCaptureInvalidated);
  }
  cuda().Free(data);
}

TEST(FakeGraphs, RefuseToEndOnAnotherThreadAndToBeginOnTheLegacyStream) {
  const Raw raw;
  EXPECT_EQ(cuda().StreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal),
            cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(raw.begin(), cudaSuccess);
  std::thread stranger([&] { EXPECT_EQ(raw.end(), cudaErrorStreamCaptureWrongThread); });
  stranger.join();
  EXPECT_EQ(raw.end(), cudaSuccess);
}

}  // namespace
}  // namespace coshard::testing
