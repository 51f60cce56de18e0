// The times of events by the host's clock, on the fake driver.
#include "runtime/device/cuda/clock.h"

#include <chrono>
#include <cstdlib>
#include <thread>

#include <coshard/runtime/observer.h>
#include "runtime/device/cuda/stream.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

TEST(CudaClock, AnEventIsReachedBetweenItsRecordAndTheHostsWait) {
  EXPECT_EQ(right_of(50,
                     [] {
                       const auto device = fake_device();
                       const auto other = device->make_stream(StreamKind::Communication);
                       const std::int64_t before = now_ns();
                       const auto first = device->compute_stream().record_timed();
                       other->wait(*first);
                       const auto second = other->record_timed();
                       second->synchronize(0);
                       const std::int64_t after = now_ns();
                       constexpr std::int64_t kNear = 5'000'000;  // half of the longest look
                       return first->timed() && second->timed() && first->reached_ns() &&
                              second->reached_ns() && *first->reached_ns() > before - kNear &&
                              *second->reached_ns() < after + kNear &&
                              *first->reached_ns() <= *second->reached_ns() + 100;  // floats
                     }),
            50);
}

TEST(CudaClock, AnEventThatIsNotReachedHasNoTime) {
  const auto device = fake_device();
  const auto other = device->make_stream(StreamKind::Communication);
  FakeDriver::get().set_eagerness(0);
  const Numbers flag(*device, 1);
  auto* raised = reinterpret_cast<std::uint32_t*>(flag.data());
  flag.set({0});
  device->synchronize();
  FakeDriver::get().park(other->native(), raised);
  const auto event = other->record_timed();
  EXPECT_EQ(event->reached_ns(), std::nullopt);
  EXPECT_EQ(event->reached_ns(), std::nullopt);
  FakeDriver::get().raise(device->compute_stream().native(), raised);
  event->synchronize(0);
  EXPECT_TRUE(event->reached_ns().has_value());
  FakeDriver::get().set_eagerness(0.15);
}

TEST(CudaClock, EventsWithoutTimingAndThoseOfALostDeviceHaveNone) {
  auto device = fake_device();
  const auto plain = device->compute_stream().record(),
             timed = device->compute_stream().record_timed();
  timed->synchronize(0);
  EXPECT_FALSE(plain->timed());
  EXPECT_EQ(plain->reached_ns(), std::nullopt);
  EXPECT_TRUE(timed->reached_ns().has_value());
  device.reset();
  EXPECT_FALSE(timed->timed());
  EXPECT_EQ(timed->reached_ns(), std::nullopt);
}

TEST(CudaClock, AReferenceThatIsNeverReachedHangsNobodyAndTheOldOneStays) {
  const auto device = fake_device();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // a reference serves for 1 s
  const auto event = device->compute_stream().record_timed();
  event->synchronize(0);
  FakeDriver::get().set_fault({.call = "EventRecord", .times = 3, .stuck = true});
  const std::int64_t begin = now_ns();
  ASSERT_TRUE(event->reached_ns().has_value());
  EXPECT_LT(std::abs(*event->reached_ns() - begin), 1'000'000'000);
  FakeDriver::get().clear_faults();
}

}  // namespace
}  // namespace coshard::testing
