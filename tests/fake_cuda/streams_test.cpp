// The fake driver detects a missing wait between streams, and memory that is freed too early.
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

constexpr int kSeedsOfStreams = 30;

bool hand_over(bool waits) {
  const auto device = fake_device();
  const auto other = device->make_stream(StreamKind::Communication);
  const Numbers x(*device, 8), y(*device, 8), z(*device, 8);
  x.set(std::vector<float>(8, 1));
  add_one(*device, x.data(), y.data(), 8, device->compute_stream());
  if (waits) other->wait(*device->compute_stream().record());
  add_one(*device, y.data(), z.data(), 8, *other);
  device->compute_stream().wait(*other->record());
  return z.get() == std::vector<float>(8, 3);
}

TEST(FakeStreams, AProgramThatWaitsIsRightInEveryOrder) {
  EXPECT_EQ(right_of(kSeedsOfStreams, [] { return hand_over(true); }), kSeedsOfStreams);
}

TEST(FakeStreams, AMissingWaitIsAWrongNumberInSomeOrder) {
  EXPECT_LT(right_of(kSeedsOfStreams, [] { return hand_over(false); }), kSeedsOfStreams);
}

bool give_back(bool marks) {
  const auto device = fake_device();
  const auto other = device->make_stream(StreamKind::Communication);
  const Numbers z(*device, 8);
  {
    const Numbers x(*device, 8);
    x.set(std::vector<float>(8, 1));
    other->wait(*device->compute_stream().record());
    add_one(*device, x.data(), z.data(), 8, *other);
    if (marks) x.buffer->used_until(other->record());
  }
  const Numbers next(*device, 8);  // reuses the memory as soon as possible
  next.set(std::vector<float>(8, 50));
  device->compute_stream().wait(*other->record());
  return z.get() == std::vector<float>(8, 2);
}

TEST(FakeStreams, MemoryThatAnotherStreamUsesIsKept) {
  EXPECT_EQ(right_of(kSeedsOfStreams, [] { return give_back(true); }), kSeedsOfStreams);
}

TEST(FakeStreams, MemoryGivenBackTooEarlyIsAWrongNumberInSomeOrder) {
  EXPECT_LT(right_of(kSeedsOfStreams, [] { return give_back(false); }), kSeedsOfStreams);
}

TEST(FakeStreams, NothingRunsBeforeSomebodyAsks) {
  FakeDriver::get().set_eagerness(0);
  const auto device = fake_device();
  const Numbers x(*device, 4), y(*device, 4);
  x.set({1, 2, 3, 4});
  add_one(*device, x.data(), y.data(), 4, device->compute_stream());
  EXPECT_NE(y.data()[0], 2);  // poison: the fake device's memory is the host's
  EXPECT_EQ(y.get(), (std::vector<float>{2, 3, 4, 5}));
  FakeDriver::get().set_eagerness(0.15);
}

TEST(FakeStreams, FreshMemoryIsFullOfNaN) {
  const auto device = fake_device();
  const Numbers x(*device, 4);
  for (const float value : x.get()) EXPECT_TRUE(value != value);
}

}  // namespace
}  // namespace coshard::testing
