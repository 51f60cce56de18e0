// Programs that omit an event: the fake driver reports the race in whatever order their work runs.
// Copies, and kernels of the back end: those of tests are not instrumented.
#include <algorithm>

#include "runtime/device/cuda/reduce.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/fake_cuda/raw_driver.h"
#include "tests/support/fake_cuda/kernel_accesses.h"

namespace coshard::testing {
namespace {

class Race : public RawDriver {
 protected:
  void SetUp() override {
    RawDriver::SetUp();
    driver.set_eagerness(0);
    first = make_stream();
    second = make_stream();
    x = bytes();
    y = bytes();
  }
  char* bytes() { return reinterpret_cast<char*>(make_floats()); }
  void fill(char* to, std::size_t count, cudaStream_t on) {
    EXPECT_EQ(cuda().MemsetAsync(to, 0, count, on), cudaSuccess);
  }
  void copy(char* to, const char* from, std::size_t count, cudaStream_t on) {
    EXPECT_EQ(cuda().MemcpyAsync(to, from, count, cudaMemcpyDefault, on), cudaSuccess);
  }
  cudaEvent_t record(cudaStream_t on) {
    events_.emplace_back();
    EXPECT_EQ(cuda().EventCreateWithFlags(&events_.back(), cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cuda().EventRecord(events_.back(), on), cudaSuccess);
    return events_.back();
  }
  void wait(cudaStream_t on, cudaEvent_t event) {
    EXPECT_EQ(cuda().StreamWaitEvent(on, event, 0), cudaSuccess);
  }
  // The complaint about all queued work, without addresses; "" if there is none.
  std::string told() {
    EXPECT_EQ(cuda().DeviceSynchronize(), cudaSuccess);
    const auto said = driver.take_complaints();
    if (said.size() != 1) return said.empty() ? "" : std::to_string(said.size()) + " complaints";
    std::string text = said[0];
    const std::size_t at = text.find(" that begin at "), end = text.find(", and", at);
    if (at != std::string::npos) text.erase(at, end - at);
    for (const auto& [stream, name] : {std::pair(first, "FIRST"), std::pair(second, "SECOND")}) {
      const std::string id = "stream " + std::to_string(driver.stream(stream).id) + " ";
      if (const std::size_t found = text.find(id); found != std::string::npos)
        text.replace(found, id.size(), std::string(name) + " ");
    }
    return text;
  }
  void TearDown() override {
    for (cudaEvent_t event : events_) EXPECT_EQ(cuda().EventDestroy(event), cudaSuccess);
    RawDriver::TearDown();
  }

  cudaStream_t first = nullptr, second = nullptr;
  char *x = nullptr, *y = nullptr;  // 128 bytes each

 private:
  std::vector<cudaEvent_t> events_;
};

// Both orders: the copy may run before what it should read is written.
TEST_F(Race, AReadThatNothingOrdersAfterTheWriteIsNamed) {
  driver.set_eagerness(1);
  int orders[2] = {0, 0};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    driver.reseed(seed);
    fill(x, 128, first);
    copy(y, x, 128, second);
    const std::string text = told();
    const bool reads_late =
        text ==
        "race: cudaMemcpyAsync on SECOND of cuda:0 reads bytes [0, 128) of the 128, and no event "
        "orders it after cudaMemsetAsync on FIRST of cuda:0, which writes them";
    const bool reads_early =
        text ==
        "race: cudaMemsetAsync on FIRST of cuda:0 writes bytes [0, 128) of the 128, and no event "
        "orders it after cudaMemcpyAsync on SECOND of cuda:0, which reads them";
    EXPECT_TRUE(reads_late || reads_early) << text;
    ++orders[reads_late ? 1 : 0];
  }
  EXPECT_GT(orders[0], 0);
  EXPECT_GT(orders[1], 0);
}

TEST_F(Race, WhatComesAfterAnEventOfTheWriteIsNone) {
  fill(x, 128, first);
  wait(second, record(first));
  copy(y, x, 128, second);
  EXPECT_EQ(told(), "");
}

TEST_F(Race, AnEventBeforeTheWriteOrdersNothing) {
  const cudaEvent_t before = record(first);
  fill(x, 128, first);
  wait(second, before);
  copy(y, x, 128, second);
  EXPECT_NE(told(), "");
}

TEST_F(Race, EventsOrderAcrossAThirdStream) {
  const cudaStream_t between = make_stream();
  fill(x, 128, first);
  wait(between, record(first));
  wait(second, record(between));
  copy(y, x, 128, second);
  EXPECT_EQ(told(), "");
}

TEST_F(Race, AWaitOfTheHostOrdersWhatItQueuesThen) {
  fill(x, 128, first);
  EXPECT_EQ(cuda().StreamSynchronize(first), cudaSuccess);
  copy(y, x, 128, second);
  const cudaEvent_t read = record(second);
  while (cuda().EventQuery(read) == cudaErrorNotReady) {
  }
  fill(x, 128, first);
  EXPECT_EQ(told(), "");
}

// Work that another call made the driver run is not ordered by that.
TEST_F(Race, WorkThatIsOverByLuckIsNotInOrder) {
  fill(x, 128, first);
  driver.drain();
  copy(y, x, 128, second);
  EXPECT_NE(told(), "");
}

TEST_F(Race, OnlyTheBytesThatBothUseAreNamed) {
  fill(x, 96, first);
  driver.drain();
  copy(y, x + 64, 64, second);
  EXPECT_NE(told().find("reads bytes [64, 96) of the 128"), std::string::npos);
}

TEST_F(Race, PartsOfOneBufferAndReadsOfTheSameBytesAreNone) {
  fill(x, 64, first);
  fill(x + 64, 64, second);
  copy(y, x, 64, first);
  copy(y + 64, x + 64, 64, second);
  EXPECT_EQ(told(), "");
  char* z = bytes();
  copy(z, y, 64, first);
  copy(z + 64, y, 64, second);
  EXPECT_EQ(told(), "");
}

TEST_F(Race, AReadIsRememberedWhenOthersHaveReadSince) {
  char* z = bytes();
  copy(y, x, 128, first);
  driver.drain();
  copy(z, x, 128, second);
  fill(x, 128, second);
  EXPECT_NE(told().find("FIRST of cuda:0, which reads them"), std::string::npos);
}

TEST_F(Race, OneIsToldAndThoseThatFollowAreNot) {
  for (int i = 0; i < 3; ++i) {
    fill(x, 128, first);
    fill(x, 128, second);
  }
  EXPECT_NE(told().find("race: cudaMemsetAsync"), std::string::npos);
  EXPECT_EQ(told(), "");
}

// --- the back end ---

std::string race_of(const std::function<void(CudaDevice&, Stream&)>& body) {
  const auto device = fake_device();
  const auto other = device->make_stream(StreamKind::Communication);
  body(*device, *other);
  device->synchronize();
  const auto said = FakeDriver::get().take_complaints();
  return said.empty() ? "" : said[0];
}

void sum(CudaDevice& device, const Numbers& from, const Numbers& to, Stream& on) {
  const void* sources[] = {from.data(), from.data()};
  reduce_on_device(device, DType::F32, Reduce::Sum, sources, to.data(), 8, on.native());
}

TEST(RaceOfKernels, EachIsNamedWithTheBytesThatItUses) {
  if (!KernelAccesses::seen()) GTEST_SKIP() << "kernels are not seen in a build with a sanitizer";
  const auto chain = [](bool waits) {
    return race_of([&](CudaDevice& device, Stream& other) {
      const Numbers x(device, 8), y(device, 8), z(device, 8);
      x.set(std::vector<float>(8, 1));
      sum(device, x, y, device.compute_stream());
      if (waits) other.wait(*device.compute_stream().record());
      sum(device, y, z, other);
      device.compute_stream().wait(*other.record());
    });
  };
  EXPECT_EQ(chain(true), "");
  // In some orders the stream that does not wait races with earlier uses of the memory first.
  int between_both = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FakeDriver::get().reseed(seed);
    const std::string said = chain(false);
    EXPECT_NE(said.find("reduce over ranks on stream "), std::string::npos) << said;
    between_both += said.find(", and no event orders it after reduce") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(between_both, 5);
}

// Memory that is freed while another stream reads it, and is allocated again.
TEST(RaceOfMemory, WhatAnotherStreamStillReadsIsNotGivenAway) {
  const auto give_back = [](bool marks) {
    return race_of([&](CudaDevice& device, Stream& other) {
      const Numbers z(device, 8);
      {
        const Numbers x(device, 8);
        x.set(std::vector<float>(8, 1));
        other.wait(*device.compute_stream().record());
        EXPECT_EQ(cuda().MemcpyAsync(z.data(), x.data(), 32, cudaMemcpyDefault,
                                     static_cast<cudaStream_t>(other.native())),
                  cudaSuccess);
        if (marks) x.buffer->used_until(other.record());
      }
      const Numbers next(device, 8);
      EXPECT_EQ(cuda().MemsetAsync(next.data(), 0, 32,
                                   static_cast<cudaStream_t>(device.compute_stream().native())),
                cudaSuccess);
      device.compute_stream().wait(*other.record());
    });
  };
  EXPECT_EQ(give_back(true), "");
  EXPECT_NE(give_back(false).find("race: "), std::string::npos);
}

// The Work that was issued last may be dropped first.
TEST(RaceOfMemory, TheLastUseOfAStreamCountsInWhateverOrderUsesAreTold) {
  const auto program = [](CudaDevice& device, Stream& other) {
    const Numbers z(device, 8);
    {
      const Numbers x(device, 8);
      x.set(std::vector<float>(8, 1));
      other.wait(*device.compute_stream().record());
      const auto earlier = other.record();
      EXPECT_EQ(cuda().MemcpyAsync(z.data(), x.data(), 32, cudaMemcpyDefault,
                                   static_cast<cudaStream_t>(other.native())),
                cudaSuccess);
      x.buffer->used_until(other.record());
      x.buffer->used_until(earlier);
    }
    const Numbers next(device, 8);
    EXPECT_EQ(cuda().MemsetAsync(next.data(), 0, 32,
                                 static_cast<cudaStream_t>(device.compute_stream().native())),
              cudaSuccess);
    device.compute_stream().wait(*other.record());
  };
  FakeDriver::get().set_eagerness(0);
  EXPECT_EQ(right_of(20, [&] { return race_of(program).empty(); }), 20);
  FakeDriver::get().set_eagerness(0.15);
}

}  // namespace
}  // namespace coshard::testing
