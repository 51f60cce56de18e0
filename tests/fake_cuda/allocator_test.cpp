// Device memory: what is cached, what a full device says, and a caller's own allocator and stream.
#include "runtime/device/allocation_label.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

struct SmallDevice {
  explicit SmallDevice(std::size_t bytes) { FakeDriver::get().set_memory_limit(bytes); }
  ~SmallDevice() { FakeDriver::get().set_memory_limit(std::size_t{8} << 30); }
};

TEST(CudaMemory, FreedBlocksAreGivenOutAgainWithoutACall) {
  const auto device = fake_device();
  device->make_buffer(1000);
  const auto before = FakeDriver::get().calls("Malloc");
  for (int i = 0; i < 5; ++i) device->make_buffer(1000);
  EXPECT_EQ(FakeDriver::get().calls("Malloc"), before);
  EXPECT_EQ(device->memory().in_use, 0U);
  EXPECT_EQ(device->memory().cached, 1024U);
  EXPECT_EQ(device->memory().peak, 1024U);
}

TEST(CudaMemory, AFullDeviceNamesTheRequestAndWhatIsHeldByWhom) {
  const SmallDevice small(1 << 20);
  const auto device = fake_device();
  std::shared_ptr<Buffer> held;
  {
    const AllocationLabel label("matmul");
    held = device->make_buffer(600 * 1024);
  }
  const std::string text = error_text(ErrorKind::DeviceFailed, [&] {
    const AllocationLabel label("softmax");
    device->make_buffer(500 * 1024);
  });
  EXPECT_NE(text.find("cuda:0: cannot allocate 512000 bytes for softmax"), std::string::npos)
      << text;
  EXPECT_NE(text.find("655360 are in use (matmul 655360)"), std::string::npos) << text;
  EXPECT_NE(text.find("of 1048576 are free on the device"), std::string::npos) << text;
  held.reset();
  device->make_buffer(500 * 1024);  // what was cached has gone back, and the device goes on
}

TEST(CudaMemory, CachedBlocksGoBackBeforeTheDeviceIsCalledFull) {
  const SmallDevice small(1 << 20);
  const auto device = fake_device();
  device->make_buffer(600 * 1024);
  const auto larger = device->make_buffer(900 * 1024);
  EXPECT_EQ(device->memory().cached, 0U);
}

TEST(CudaMemory, TheCallersAllocatorAndStreamAreUsed) {
  const auto owner = fake_device();
  const auto stream = owner->make_stream(StreamKind::Compute);
  int given = 0, taken = 0;
  CudaOptions options;
  options.compute_stream = stream->native();
  options.allocate = [&](std::size_t bytes, void* on) {
    EXPECT_EQ(on, stream->native());
    ++given;
    return owner->allocate(bytes);
  };
  options.deallocate = [&](void* data, std::size_t bytes, void*) {
    ++taken;
    owner->deallocate(data, bytes, {});
  };
  {
    const auto device = fake_device(options);
    EXPECT_EQ(device->compute_stream().native(), stream->native());
    const Numbers x(*device, 4);
    x.set({1, 2, 3, 4});
    EXPECT_EQ(x.get(), (std::vector<float>{1, 2, 3, 4}));
  }
  EXPECT_EQ(given, 1);
  EXPECT_EQ(taken, 1);
  const Numbers nothing(*owner, 1);  // the stream is still the owner's
  stream->record();
}

TEST(CudaMemory, PoisonedAllocationsAreNaNAlsoWhenReused) {
  CudaOptions options;
  options.poison = true;
  const auto device = fake_device(options);
  {
    const Numbers x(*device, 4);
    x.set({1, 2, 3, 4});
  }
  const Numbers again(*device, 4);
  for (const float value : again.get()) EXPECT_TRUE(value != value);
}

}  // namespace
}  // namespace coshard::testing
