// The cpu as a device.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/sanitizers.h>

namespace coshard::testing {
namespace {

TEST(CpuDevice, AnEmptyBufferNeedsNoMemory) {
  const auto device = make_cpu_device(1);
  EXPECT_EQ(device->make_buffer(0)->bytes(), 0U);
  EXPECT_EQ(device->memory().peak, 0U);
}

TEST(CpuDevice, ABorrowedBufferIsNotFreed) {
  const auto device = make_cpu_device(1);
  std::vector<float> mine(4, 3.0F);
  { EXPECT_EQ(device->borrow(mine.data(), 16)->data(), mine.data()); }
  EXPECT_EQ(mine[3], 3.0F);
  EXPECT_EQ(device->memory().cached, 0U);
}

TEST(CpuDevice, AnImpossibleRequestNamesItsSize) {
  const auto device = make_cpu_device(1);
  try {
    device->make_buffer(std::size_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::DeviceFailed);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976 bytes"), std::string::npos)
        << error.what();
  }
}

TEST(CpuDevice, BuffersMayBeFreedByOtherThreads) {
  const auto device = make_cpu_device(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<Buffer>> made;
    for (std::size_t i = 0; i < 100; ++i) made.push_back(device->make_buffer(100 * i));
    std::thread peer([theirs = std::move(made)]() mutable { theirs.clear(); });
    for (std::size_t i = 0; i < 100; ++i) device->make_buffer(100 * i);
    peer.join();
  }
  EXPECT_EQ(device->memory().in_use, 0U);
}

TEST(CpuDevice, StreamsRunInlineAndTheirEventsAreComplete) {
  const auto device = make_cpu_device(1);
  const auto stream = device->make_stream(StreamKind::Communication);
  EXPECT_EQ(stream->kind(), StreamKind::Communication);
  const int from = 5;
  int to = 0;
  device->upload(&to, &from, sizeof to);
  EXPECT_EQ(to, 5);
  const auto event = stream->record();
  EXPECT_TRUE(event->query());
  device->compute_stream().wait(*event);
  event->synchronize(0);
}

TEST(CpuDevice, NeedsAThread) { EXPECT_THROW(make_cpu_device(0), Error); }

}  // namespace
}  // namespace coshard::testing
