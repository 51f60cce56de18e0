// Programs that fail on a real driver, and must on the fake: a stream that waits for work not
// queued yet, memory freed while work still needs it, and memory reused without an event.
#include <thread>

#include "tests/fake_cuda/raw_driver.h"

namespace coshard::testing {
namespace {

class NegativeControl : public RawDriver {
 protected:
  void SetUp() override {
    RawDriver::SetUp();
    driver.set_waiting(1);
    driver.set_patience(std::chrono::milliseconds(300));
  }

  // One thread parks a stream and then makes `call`, while another is about to queue what the
  // stream waits for. True if the call returned without an error.
  bool survives_parked(const std::function<cudaError_t(cudaStream_t)>& call) {
    const cudaStream_t parked = make_stream(), other = make_stream();
    alignas(8) static std::uint32_t flag;
    flag = 0;
    driver.park(parked, &flag);
    std::thread peer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      driver.raise(other, &flag);
    });
    const bool good = call(parked) == cudaSuccess;
    peer.join();
    // The two may share a hardware queue, and would then hang forever.
    __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
    EXPECT_EQ(cuda().DeviceSynchronize(), cudaSuccess);
    return good;
  }
  void expect_complaint(const std::string& call) {
    const auto said = driver.take_complaints();
    ASSERT_EQ(said.size(), 1U);
    EXPECT_NE(said[0].find("the work of cuda:0 cannot end: stream "), std::string::npos) << said[0];
    EXPECT_NE(said[0].find(" waits for a flag, while " + call + " holds the context"),
              std::string::npos)
        << said[0];
  }
};

TEST_F(NegativeControl, AFirstLaunchBesideAParkedStreamNeverComesBack) {
  float *x = make_floats(), *y = make_floats();
  const cudaStream_t free = make_stream();
  EXPECT_FALSE(survives_parked([&](cudaStream_t) { return add_one(x, y, free); }));
  expect_complaint("cudaLaunchKernel of 'add one'");
}

TEST_F(NegativeControl, ALaunchOfALoadedKernelBesideAParkedStreamGoesOn) {
  float *x = make_floats(), *y = make_floats();
  const cudaStream_t free = make_stream();
  EXPECT_EQ(add_one(x, y, free), cudaSuccess);
  EXPECT_TRUE(survives_parked([&](cudaStream_t) { return add_one(x, y, free); }));
}

TEST_F(NegativeControl, EveryCallThatWaitsForTheDeviceHangsBesideAParkedStream) {
  float* x = make_floats();
  void *pinned = nullptr, *more = nullptr;
  EXPECT_EQ(cuda().HostAlloc(&pinned, 64, 0), cudaSuccess);
  cudaStream_t none = nullptr;
  const std::vector<std::pair<const char*, std::function<cudaError_t()>>> calls = {
      {"cudaDeviceSynchronize", [] { return cuda().DeviceSynchronize(); }},
      {"cudaFree", [&] { return cuda().Free(x); }},
      {"cudaFreeHost", [&] { return cuda().FreeHost(pinned); }},
      {"cudaHostAlloc", [&] { return cuda().HostAlloc(&more, 64, 0); }},
      {"cudaMalloc", [&] { return cuda().Malloc(&more, 64); }},
      {"cudaDeviceEnablePeerAccess", [] { return cuda().DeviceEnablePeerAccess(1, 0); }},
      {"cudaStreamCreateWithPriority",
       [&] { return cuda().StreamCreateWithPriority(&none, cudaStreamNonBlocking, 0); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_FALSE(survives_parked([&](cudaStream_t) { return call(); })) << name;
    expect_complaint(name);
  }
  EXPECT_EQ(cuda().FreeHost(pinned), cudaSuccess);
}

TEST_F(NegativeControl, WaitingForTheParkedStreamItselfHangs) {
  EXPECT_FALSE(survives_parked([](cudaStream_t s) { return cuda().StreamSynchronize(s); }));
  expect_complaint("cudaStreamSynchronize");
}

TEST_F(NegativeControl, WhatQueuesBehindAParkedStreamOfItsHardwareQueueHangs) {
  // Of nine streams two share a queue: the wait of one blocks later work of the other.
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < 9; ++i) streams.push_back(make_stream());
  static std::uint32_t flags[9];
  int held_back = 0;
  for (std::size_t i = 0; i < 9; ++i) {
    flags[i] = 0;
    driver.park(streams[i], &flags[i]);
    for (std::size_t j = 0; j < 9; ++j) {
      if (j == i) continue;
      cudaEvent_t event = nullptr;
      EXPECT_EQ(cuda().EventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
      EXPECT_EQ(cuda().EventRecord(event, streams[j]), cudaSuccess);
      int looks = 0;
      while (cuda().EventQuery(event) == cudaErrorNotReady && looks < 50) ++looks;
      held_back += looks == 50 ? 1 : 0;
      EXPECT_EQ(cuda().EventDestroy(event), cudaSuccess);
    }
    flags[i] = 1;  // the host releases it
  }
  EXPECT_GE(held_back, 2);
  EXPECT_LT(held_back, 72);
}

// cudaFree waits for the memory's device, not for another one that copies into it.
TEST_F(NegativeControl, ASlotFreedWhileAQueuedCopyStillWritesItIsNamed) {
  driver.set_eagerness(0);
  float* slot = make_floats();
  EXPECT_EQ(cuda().SetDevice(1), cudaSuccess);
  float* from = make_floats();
  const cudaStream_t stream = make_stream();
  EXPECT_EQ(cuda().MemcpyAsync(slot, from, 128, cudaMemcpyDefault, stream), cudaSuccess);
  EXPECT_EQ(driver.take_complaints(), std::vector<std::string>());
  free_floats(slot);
  EXPECT_EQ(cuda().StreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(driver.take_complaints(),
            std::vector<std::string>{"cudaMemcpyAsync has memory that has been freed since"});
}

// A stream overwrites memory that another still reads.
bool reuse_is_right(cudaStream_t reader, cudaStream_t writer, float* x, float* y, bool waits) {
  EXPECT_EQ(cuda().MemsetAsync(x, 0, 128, reader), cudaSuccess);
  EXPECT_EQ(add_one(x, y, reader), cudaSuccess);
  cudaEvent_t read = nullptr;
  EXPECT_EQ(cuda().EventCreateWithFlags(&read, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cuda().EventRecord(read, reader), cudaSuccess);
  if (waits) {
    EXPECT_EQ(cuda().StreamWaitEvent(writer, read, 0), cudaSuccess);
  }
  EXPECT_EQ(cuda().MemsetAsync(x, 0x7f, 128, writer), cudaSuccess);
  EXPECT_EQ(cuda().DeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cuda().EventDestroy(read), cudaSuccess);
  return y[7] == 1;
}

TEST_F(NegativeControl, MemoryUsedAgainWithoutAnEventIsAWrongNumberForSomeSeed) {
  float *x = make_floats(), *y = make_floats();
  const cudaStream_t reader = make_stream(), writer = make_stream();
  driver.set_waiting(0);
  int right[2] = {0, 0}, named = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed)
    for (const bool waits : {false, true}) {
      driver.reseed(seed);
      right[waits ? 1 : 0] += reuse_is_right(reader, writer, x, y, waits) ? 1 : 0;
      const auto said = driver.take_complaints();
      EXPECT_EQ(said.empty(), waits);
      named += said.empty() ? 0 : 1;
    }
  EXPECT_LT(right[0], 30);
  EXPECT_EQ(right[1], 30);
  EXPECT_EQ(named, 30);
}

}  // namespace
}  // namespace coshard::testing
