// Every CUDA call fails once: the error is typed and names the call, nothing hangs, and the next
// device works.
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

// A little of everything that one rank does; the same calls each time.
void use_a_device() {
  FakeDriver::get().reseed(7);
  const auto device = fake_device();
  const auto other = device->make_stream(StreamKind::Communication);
  const Numbers x(*device, 8), y(*device, 8);
  x.set(std::vector<float>(8, 1));
  other->wait(*device->compute_stream().record());
  add_one(*device, x.data(), y.data(), 8, *other);
  device->compute_stream().wait(*other->record());
  EXPECT_EQ(y.get(), std::vector<float>(8, 2));
}

class EveryCall : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryCall, ThatFailsIsATypedErrorAndTheNextDeviceWorks) {
  FakeDriver::get().reset_counts();
  use_a_device();
  const auto calls = FakeDriver::get().calls(GetParam());
  ASSERT_GT(calls, 0U) << "the program does not call " << GetParam();
  for (std::uint64_t after = 0; after < std::min<std::uint64_t>(calls, 6); ++after) {
    FakeDriver::get().set_fault(
        {.call = GetParam(), .after = static_cast<int>(after), .error = cudaErrorLaunchFailure});
    const std::string text = error_text(ErrorKind::DeviceFailed, use_a_device);
    EXPECT_NE(text.find("cudaErrorLaunchFailure"), std::string::npos) << text;
    FakeDriver::get().clear_faults();
    use_a_device();
  }
}

// Memory that has run out is asked for again after the cache is freed; that has tests of its own.
INSTANTIATE_TEST_SUITE_P(Cuda, EveryCall,
                         ::testing::Values("DeviceGetAttribute", "DeviceGetStreamPriorityRange",
                                           "EventCreateWithFlags", "EventQuery", "EventRecord",
                                           "GetDeviceCount", "HostAlloc", "Launch",
                                           "MallocFromPoolAsync", "MemPoolCreate",
                                           "MemPoolSetAttribute", "MemcpyAsync",
                                           "StreamCreateWithPriority", "StreamWaitEvent"),
                         [](const auto& info) { return std::string(info.param); });

// What fails while things are taken down is told on stderr and does not throw.
class EveryEnd : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryEnd, ThatFailsIsLoggedAndDoesNotThrow) {
  FakeDriver::get().set_fault({.call = GetParam(), .error = cudaErrorLaunchFailure});
  ::testing::internal::CaptureStderr();
  use_a_device();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(std::string("coshard: cuda") + GetParam()), std::string::npos) << said;
  FakeDriver::get().clear_faults();
  // What could not be freed is held by a pool that ends.
  const auto complaints = FakeDriver::get().take_complaints();
  EXPECT_EQ(complaints.size(), GetParam() == std::string("FreeAsync") ? 1U : 0U);
}

INSTANTIATE_TEST_SUITE_P(Cuda, EveryEnd,
                         ::testing::Values("EventDestroy", "FreeAsync", "FreeHost",
                                           "MemPoolDestroy", "StreamDestroy"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace coshard::testing
