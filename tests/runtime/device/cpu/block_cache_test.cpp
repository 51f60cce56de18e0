// Blocks of host memory that are used again.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/sanitizers.h>

namespace coshard::testing {
namespace {

// Freed blocks go to the sanitizer's quarantine.
constexpr bool kCaches = !COSHARD_ASAN;

TEST(CpuDevice, BuffersOfAllSizesAreAlignedAndWritable) {
  const auto device = make_cpu_device(1);
  for (std::size_t bytes = 1; bytes < 10'000'000; bytes = bytes * 5 / 4 + 1) {
    const auto buffer = device->make_buffer(bytes);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U) << bytes;
    std::memset(buffer->data(), 1, bytes);
  }
}

TEST(CpuDevice, LiveBuffersDoNotOverlap) {
  const auto device = make_cpu_device(1);
  std::vector<std::shared_ptr<Buffer>> live;
  for (std::size_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 100; ++i) {
      live.push_back(device->make_buffer(i * 13 + 1));
      std::memset(live.back()->data(), static_cast<int>(live.size() % 251), live.back()->bytes());
    }
    for (std::size_t i = 0; i < live.size(); ++i) {
      const auto* bytes = static_cast<const unsigned char*>(live[i]->data());
      ASSERT_EQ(bytes[0], (i + 1) % 251);
      ASSERT_EQ(bytes[live[i]->bytes() - 1], (i + 1) % 251);
    }
    live.resize(live.size() / 2);
  }
}

TEST(CpuDevice, AFreedBlockIsReused) {
  if (!kCaches) GTEST_SKIP() << "no cache under AddressSanitizer";
  const auto device = make_cpu_device(1);
  for (std::size_t bytes : {std::size_t{10}, std::size_t{5000}, std::size_t{3} << 20}) {
    void* first = device->make_buffer(bytes)->data();
    EXPECT_EQ(device->make_buffer(bytes)->data(), first);
  }
}

TEST(CpuDevice, CountsWhatIsInUseCachedAndThePeak) {
  const auto device = make_cpu_device(1);
  auto one = device->make_buffer(1000);
  auto two = device->make_buffer(64);
  const MemoryStats both = device->memory();
  EXPECT_GE(both.in_use, 1064U);
  EXPECT_LE(both.in_use, 1064U * 9 / 8);
  one.reset();
  const MemoryStats after = device->memory();
  EXPECT_EQ(after.in_use, 64U);
  EXPECT_EQ(after.peak, both.in_use);
  EXPECT_EQ(after.cached, kCaches ? both.in_use - 64 : 0);
}

TEST(CpuDevice, APeakDoesNotCountWhatCouldNotBeAllocated) {
  if (COSHARD_ASAN || COSHARD_TSAN)
    GTEST_SKIP() << "sanitizers end a program that asks for so much";
  const auto device = make_cpu_device(1);
  const auto held = device->make_buffer(64);
  const std::size_t peak = device->memory().peak;
  EXPECT_THROW(device->make_buffer(std::size_t{1} << 50), Error);
  EXPECT_EQ(device->memory().in_use, 64U);
  EXPECT_EQ(device->memory().peak, peak);
}

}  // namespace
}  // namespace coshard::testing
