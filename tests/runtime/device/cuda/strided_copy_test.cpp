// Copies of rows.
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "runtime/comm/local/host/reduce.h"
#include "runtime/device/cuda/reduce.h"
#include "runtime/device/cuda/strided_copy.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Memory of a device that begins `offset` bytes behind a multiple of 256.
struct Region {
  Region(CudaDevice& device, std::size_t bytes, std::size_t offset)
      : buffer(device.make_buffer(bytes + offset + 1)),
        data(static_cast<std::uint8_t*>(buffer->data()) + offset),
        bytes(bytes) {}
  Bytes get() const {
    Bytes read(bytes);
    if (bytes > 0) buffer->device()->download(read.data(), data, bytes);
    return read;
  }
  void put(const Bytes& from) const {
    if (bytes > 0) buffer->device()->upload(data, from.data(), bytes);
  }
  std::shared_ptr<Buffer> buffer;
  std::uint8_t* data;
  std::size_t bytes;
};

void expect_copied(CudaDevice& device, const StridedCopy& c, std::mt19937& engine) {
  const std::size_t to_offset = engine() % 3 * 8, from_offset = engine() % 2 * 16;
  const auto size = [&](std::int64_t pitch) {
    return static_cast<std::size_t>((c.rows - 1) * pitch + c.bytes);
  };
  const Region from(device, size(c.from_pitch), from_offset),
      to(device, size(c.to_pitch), to_offset);
  Bytes values(from.bytes), want(to.bytes);
  for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(engine());
  for (std::uint8_t& value : want) value = static_cast<std::uint8_t>(engine());
  from.put(values);
  to.put(want);
  StridedCopy there = c;
  there.to = to.data;
  there.from = from.data;
  device.peers()->copy(there, device.compute_stream());
  for (std::int64_t row = 0; row < c.rows; ++row)
    std::memcpy(want.data() + row * c.to_pitch, values.data() + row * c.from_pitch,
                static_cast<std::size_t>(c.bytes));
  EXPECT_EQ(to.get(), want) << c.rows << " rows of " << c.bytes << " bytes, " << c.to_pitch
                            << " and " << c.from_pitch << " apart";
}

TEST(CopyOfRows, CopiesRowsOfEveryWidthAndLeavesWhatIsBetweenThem) {
  const auto device = fake_device();
  std::mt19937 engine(static_cast<unsigned>(FakeDriver::get().draw()));
  for (const std::int64_t rows : {1, 2, 7, 300}) {
    for (const std::int64_t bytes : {1, 2, 4, 6, 8, 24, 64, 80, 4096, 5000}) {
      if (rows * bytes > 400'000) continue;
      for (const std::int64_t more : {0, 1, 2, 8, 16})
        expect_copied(*device, {nullptr, nullptr, rows, bytes, bytes + more, bytes + 2 * more},
                      engine);
    }
  }
  expect_copied(*device, {nullptr, nullptr, 3, 300'000, 300'016, 300'000}, engine);
}

TEST(CopyOfRows, IsOneKernelUnlessTheRowsLieSideBySide) {
  const auto device = fake_device();
  const Region from(*device, 4096, 0), to(*device, 4096, 0);
  const auto launches = [&](const StridedCopy& copy) {
    FakeDriver::get().reset_counts();
    device->peers()->copy(copy, device->compute_stream());
    return FakeDriver::get().calls("Launch");
  };
  EXPECT_EQ(launches({to.data, from.data, 4, 64, 64, 64}), 0U);
  EXPECT_EQ(launches({to.data, from.data, 4, 64, 64, 128}), 1U);
}

// Of different shapes, some empty, some dense.
TEST(CopyOfRows, ManyCopiesAreOneKernelForEvery32) {
  const auto device = fake_device();
  std::mt19937 engine(static_cast<unsigned>(FakeDriver::get().draw()));
  for (const std::size_t count : {0, 2, 32, 33, 70}) {
    const std::size_t width = 16 << engine() % 3;
    const Region from(*device, 70 * 8 * width, 0), to(*device, 70 * 8 * width, 0);
    Bytes values(from.bytes), want(to.bytes, 0);
    for (std::uint8_t& value : values) value = static_cast<std::uint8_t>(engine());
    from.put(values);
    to.put(want);
    std::vector<StridedCopy> copies;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t some = i % 32 == 0 ? 1 : 0;  // no batch is empty
      const std::size_t at = i * 8 * width, rows = some + engine() % 4,
                        bytes = some + engine() % width;
      copies.push_back({to.data + at, from.data + at, static_cast<std::int64_t>(rows),
                        static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(width),
                        static_cast<std::int64_t>(2 * width)});
      for (std::size_t row = 0; row < rows; ++row)
        std::memcpy(want.data() + at + row * width, values.data() + at + row * 2 * width, bytes);
    }
    FakeDriver::get().reset_counts();
    device->peers()->copy(copies, device->compute_stream());
    EXPECT_EQ(FakeDriver::get().calls("Launch"), (count + 31) / 32);
    EXPECT_EQ(to.get(), want);
  }
}

// cudaMemcpy2DAsync refuses a pitch above cudaDevAttrMaxPitch, 2^31 - 1.
TEST(CopyOfRows, TakesPitchesThatNoCopyEngineTakes) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 31) + 64;
  const auto bytes = static_cast<std::size_t>(kPitch) + 4096;
  void* far = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(far, MAP_FAILED);
  {
    const auto device = fake_device();
    const Region to(*device, 64, 0);
    for (int i = 0; i < 32; ++i) {
      static_cast<std::uint8_t*>(far)[i] = static_cast<std::uint8_t>(i);
      static_cast<std::uint8_t*>(far)[kPitch + i] = static_cast<std::uint8_t>(32 + i);
    }
    const StridedCopy copy{to.data, far, 2, 32, 32, kPitch};
    copy_rows_on_device(*device, {&copy, 1}, device->compute_stream().native());
    const Bytes got = to.get();
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(got[i], i);
  }
  munmap(far, bytes);
}

}  // namespace
}  // namespace coshard::testing
