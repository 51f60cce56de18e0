// Device memory: what is cached, what a full device says, and a caller's own allocator and stream.
#include <deque>
#include <initializer_list>
#include <map>
#include <random>

#include "runtime/device/allocation_label.h"
#include "runtime/device/cuda/api.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

struct SmallDevice {
  explicit SmallDevice(std::size_t bytes) { FakeDriver::get().set_memory_limit(bytes); }
  ~SmallDevice() { FakeDriver::get().set_memory_limit(std::size_t{8} << 30); }
};

// Nothing runs before the host asks.
struct LazyDevice {
  LazyDevice() { FakeDriver::get().set_eagerness(0); }
  ~LazyDevice() { FakeDriver::get().set_eagerness(0.15); }
};

std::uint64_t calls(const char* name) { return FakeDriver::get().calls(name); }

TEST(CudaMemory, FreedMemoryIsGivenOutAgainAtOnce) {
  const LazyDevice lazy;
  const auto device = fake_device();
  const void* first = device->make_buffer(4000)->data();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(device->make_buffer(4000)->data(), first);
  EXPECT_EQ(device->memory().in_use, 0U);
  EXPECT_EQ(device->memory().cached, 4096U);
  EXPECT_EQ(device->memory().peak, 4000U);
}

TEST(CudaMemory, AFullDeviceNamesTheRequestAndWhatIsHeldByWhom) {
  const SmallDevice small(kMiB);
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
  EXPECT_NE(text.find("614400 are in use (matmul 614400), 0 cached"), std::string::npos) << text;
  EXPECT_NE(text.find("434176 of 1048576 are free on the device"), std::string::npos) << text;
  held.reset();
  device->make_buffer(500 * 1024);  // and the device goes on
}

TEST(CudaMemory, WhatIsCachedGoesBackBeforeTheDeviceIsCalledFull) {
  const SmallDevice small(kMiB);
  const LazyDevice lazy;
  const auto device = fake_device();
  auto first = device->make_buffer(300 * 1024);
  const auto held = device->make_buffer(300 * 1024);
  auto last = device->make_buffer(300 * 1024);
  first.reset();
  last.reset();
  const auto trims = calls("MemPoolTrimTo"), waits = calls("DeviceSynchronize");
  const auto larger = device->make_buffer(500 * 1024);
  EXPECT_EQ(calls("MemPoolTrimTo"), trims + 1);
  EXPECT_EQ(calls("DeviceSynchronize"), waits);
  EXPECT_EQ(device->memory().in_use, 800U * 1024);
}

// The stages of a step whose length is drawn hold what they make until the way back.
TEST(CudaMemory, LengthsThatVaryNeitherFragmentItNorMakeTheHostWait) {
  constexpr std::size_t kLongest = 4096, kPerToken = 152, kStages = 8;
  const SmallDevice small(kLongest * kPerToken * 3 / 2);
  const auto device = fake_device();
  std::mt19937 random(5);
  std::uint64_t waits = 0;
  for (int step = 0; step < 300; ++step) {
    if (step == 20) waits = FakeDriver::get().synchronisations() + calls("MemPoolTrimTo");
    const std::size_t length = step == 0 ? kLongest : 1 + random() % kLongest;
    std::deque<std::shared_ptr<Buffer>> held;
    for (std::size_t stage = 0; stage < kStages; ++stage) {
      held.push_back(device->make_buffer(length * (4 + stage % 3 * 16)));
      device->make_buffer(length * 2);  // of this stage alone
    }
    while (!held.empty()) {
      const auto grad = device->make_buffer(length * 8);
      held.pop_back();
    }
  }
  EXPECT_EQ(FakeDriver::get().synchronisations() + calls("MemPoolTrimTo"), waits);
  EXPECT_EQ(device->memory().in_use, 0U);
  EXPECT_EQ(device->memory().peak, kLongest * kPerToken);
}

// A buffer that another stream used, and where the next one of its size lies.
struct Used {
  Used(CudaDevice& device, bool waits) : stream(device.make_stream(StreamKind::Communication)) {
    const auto buffer = device.make_buffer(400 * 1024);
    data = buffer->data();
    stream->wait(*device.compute_stream().record());
    const auto use = stream->record();
    buffer->used_until(use);
    if (waits) device.compute_stream().wait(*use);
  }
  std::unique_ptr<Stream> stream;
  const void* data = nullptr;
};

TEST(CudaMemory, WhatTheComputeStreamHasWaitedForIsItsOwnAgain) {
  const LazyDevice lazy;
  const auto device = fake_device();
  const Used used(*device, true);
  EXPECT_EQ(device->make_buffer(400 * 1024)->data(), used.data);
}

TEST(CudaMemory, WhatAnotherStreamUsesIsKeptUntilItIsOverOrMemoryRunsOut) {
  const SmallDevice small(kMiB);
  const LazyDevice lazy;
  const auto device = fake_device();
  const Used used(*device, false);
  FakeDriver::get().set_fault({.call = "EventQuery", .times = 1000, .error = cudaErrorNotReady});
  const auto other = device->make_buffer(400 * 1024);
  EXPECT_NE(other->data(), used.data);
  EXPECT_EQ(device->memory().in_use, 400U * 1024);
  // In the order of the streams: the host waits for nothing.
  const auto third = device->make_buffer(400 * 1024);
  EXPECT_EQ(third->data(), used.data);
  FakeDriver::get().clear_faults();
}

// The host never sees the work of `slow` complete. Create it before the device.
class SlowStream {
 public:
  SlowStream() : before_(cuda()) {
    table_ = below_ = before_;
    table_.EventRecord = [](cudaEvent_t event, cudaStream_t stream) {
      streams_[event] = stream;
      return below_.EventRecord(event, stream);
    };
    table_.EventQuery = [](cudaEvent_t event) {
      const cudaError_t status = below_.EventQuery(event);
      return streams_[event] == slow ? cudaErrorNotReady : status;
    };
    use_cuda(&table_);
  }
  ~SlowStream() { use_cuda(&before_); }
  SlowStream(const SlowStream&) = delete;
  SlowStream& operator=(const SlowStream&) = delete;
  static inline const void* slow = nullptr;

 private:
  const CudaApi& before_;
  CudaApi table_{};
  static inline CudaApi below_{};
  static inline std::map<cudaEvent_t, const void*> streams_;
};

// Frees a buffer that work on the streams uses, and waits until the fast ones are past it.
const void* freed_in_use(CudaDevice& device, std::initializer_list<Stream*> streams) {
  const auto buffer = device.make_buffer(400 * 1024);
  for (Stream* stream : streams) {
    stream->wait(*device.compute_stream().record());
    const auto use = stream->record();
    buffer->used_until(use);
    if (stream->native() != SlowStream::slow) use->synchronize(0);
  }
  return buffer->data();
}

TEST(CudaMemory, ASlowStreamHoldsBackOnlyItsOwnMemory) {
  const SlowStream table;
  const auto device = fake_device();
  const auto slow = device->make_stream(StreamKind::Communication);
  const auto other = device->make_stream(StreamKind::Communication);
  SlowStream::slow = slow->native();
  for (int i = 0; i < 20; ++i) freed_in_use(*device, {slow.get()});
  const void* over = freed_in_use(*device, {other.get()});
  FakeDriver::get().reset_counts();
  EXPECT_EQ(device->make_buffer(400 * 1024)->data(), over);
  EXPECT_EQ(calls("EventQuery"), 2U);  // one for each stream
  EXPECT_EQ(calls("FreeAsync"), 2U);
}

TEST(CudaMemory, WhatTwoStreamsUseIsFreedAfterBoth) {
  const SlowStream table;
  const auto device = fake_device();
  const auto a = device->make_stream(StreamKind::Communication);
  const auto b = device->make_stream(StreamKind::Communication);
  for (const Stream* slow : {a.get(), b.get()}) {
    SlowStream::slow = slow->native();
    freed_in_use(*device, {a.get(), b.get()});
    FakeDriver::get().reset_counts();
    for (int i = 0; i < 3; ++i) device->make_buffer(4000);
    EXPECT_EQ(calls("FreeAsync"), 3U);
    SlowStream::slow = nullptr;
    for (const auto& stream : {a.get(), b.get()}) stream->record()->synchronize(0);
    for (int i = 0; i < 3; ++i) device->make_buffer(4000);
    EXPECT_EQ(calls("FreeAsync"), 7U);
  }
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
    void* data = owner->allocate(bytes);
    stream->wait(*owner->compute_stream().record());  // for which the memory is meant
    return data;
  };
  options.deallocate = [&](void* data, std::size_t bytes, void*) {
    ++taken;
    const std::shared_ptr<Event> uses[] = {stream->record()};
    owner->deallocate(data, bytes, uses);
  };
  {
    const auto device = fake_device(options);
    EXPECT_EQ(device->compute_stream().native(), stream->native());
    EXPECT_EQ(given, taken);  // a product to begin with
    given = taken = 0;
    const Numbers x(*device, 4);
    x.set({1, 2, 3, 4});
    EXPECT_EQ(x.get(), (std::vector<float>{1, 2, 3, 4}));
  }
  EXPECT_EQ(given, 1);
  EXPECT_EQ(taken, 1);
  const Numbers nothing(*owner, 1);  // the stream is still the owner's
  stream->record();
}

TEST(CudaMemory, HalfACallersAllocatorIsRefused) {
  const auto text_of = [](CudaOptions options) -> std::string {
    try {
      fake_device(std::move(options));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CudaOptions takes, gives;
  takes.deallocate = [](void*, std::size_t, void*) {};
  gives.allocate = [](std::size_t, void*) -> void* { return nullptr; };
  EXPECT_NE(text_of(takes).find("give both allocate and deallocate; only deallocate is given"),
            std::string::npos);
  EXPECT_NE(text_of(gives).find("give both allocate and deallocate; only allocate is given"),
            std::string::npos);
}

TEST(CudaMemory, AnotherDeviceReachesAPoolOnlyOnceItIsAllowedTo) {
  FakeDriver::get().set_devices(2);
  const auto device = fake_device(), peer = fake_device({.index = 1});
  const Numbers from(*peer, 4), to(*device, 4);
  from.set({1, 2, 3, 4});
  peer->synchronize();
  const auto copy = [&] {
    device->make_current();
    cuda().MemcpyAsync(to.data(), from.data(), 16, cudaMemcpyDefault,
                       static_cast<cudaStream_t>(device->compute_stream().native()));
    return FakeDriver::get().take_complaints();
  };
  EXPECT_EQ(copy(), std::vector<std::string>{
                        "cudaMemcpyAsync: cuda:0 has no access to the pool of cuda:1"});
  peer->allow_access(0);
  EXPECT_EQ(copy(), std::vector<std::string>());
  EXPECT_EQ(to.get(), (std::vector<float>{1, 2, 3, 4}));
}

TEST(CudaMemory, WhatNoPoolGaveCannotBeFreedAndWhatIsHeldAtTheEndIsReported) {
  float mine = 0;
  {
    const auto device = fake_device();
    const auto stream = static_cast<cudaStream_t>(device->compute_stream().native());
    EXPECT_EQ(cuda().FreeAsync(&mine, stream), cudaErrorInvalidValue);
    device->allocate(1000);
  }
  EXPECT_EQ(FakeDriver::get().take_complaints(),
            (std::vector<std::string>{"cudaFreeAsync of memory that no pool gave",
                                      "a pool ends while 1024 bytes are in use"}));
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
