// A CUDA device: whose thread, whose memory, and what kernels find.
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include "kernels/run.h"
#include "runtime/device/make_device.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

TEST(CudaDevice, IsMadeCurrentWhereTheThreadHasAnother) {
  FakeDriver::get().set_devices(2);
  const auto device = fake_device({.index = 1});
  const Numbers x(*device, 4), y(*device, 4);
  FakeDriver::current_device() = 0;  // as a caller may between any two calls
  x.set({1, 2, 3, 4});
  FakeDriver::current_device() = 0;
  add_one(*device, x.data(), y.data(), 4, device->compute_stream());
  EXPECT_EQ(FakeDriver::current_device(), 1);
  EXPECT_EQ(y.get(), (std::vector<float>{2, 3, 4, 5}));
  FakeDriver::current_device() = 0;
  FakeDriver::get().set_fault({.call = "SetDevice", .error = cudaErrorLaunchFailure});
  const std::string text = error_text(ErrorKind::DeviceFailed, [&] { device->make_current(); });
  EXPECT_NE(text.find("cuda:1: cudaSetDevice: cudaErrorLaunchFailure"), std::string::npos) << text;
  FakeDriver::get().clear_faults();
}

TEST(CudaDevice, MemoryThatOtherThreadsFreeLeavesTheirDeviceAlone) {
  FakeDriver::get().set_devices(2);
  const auto device = fake_device({.index = 1});
  auto buffer = device->make_buffer(1000);
  FakeDriver::current_device() = 0;
  buffer.reset();
  EXPECT_EQ(FakeDriver::current_device(), 0);
}

TEST(CudaDevice, AnIndexOutOfRangeIsThrownOnceByTheNextWait) {
  const auto device = fake_device();
  const std::vector<std::int64_t> ids = {3, 9, 1};
  const auto buffer = device->make_buffer(3 * sizeof(std::int64_t));
  device->upload(buffer->data(), ids.data(), 3 * sizeof(std::int64_t));
  kernels::run(*device, kernels::CheckIndex{DeviceAssertKind::EmbeddingId, DType::I64, 3, 8,
                                            buffer->data()});
  const std::string text = error_text(ErrorKind::BadInput, [&] { device->synchronize(); });
  EXPECT_EQ(text, "embedding: id 9 is out of bounds for a table of 8 rows (found on cuda:0)");
  device->synchronize();
}

TEST(CudaDevice, AWorldTakesADeviceOfTheCallersOwn) {
  const auto mine = fake_device();
  const auto stream = mine->make_stream(StreamKind::Compute);
  WorldOptions options;
  options.ranks = 1;
  options.make_device = [&](int) {
    CudaOptions cuda;
    cuda.compute_stream = stream->native();
    return fake_device(cuda);
  };
  const Program program = [&](World& world) -> Task<void> {
    EXPECT_EQ(world.device()->compute_stream().native(), stream->native());
    const Tensor x = full(world.device(), Shape{3}, 2.0);
    EXPECT_EQ(mul(x, x).to_vector(), (std::vector<double>{4, 4, 4}));
    co_return;
  };
  run_ranks(options, program);
}

TEST(CudaDevice, WithoutADeviceTheErrorSaysSo) {
  FakeDriver::get().set_devices(0);
  const std::string none = error_text(ErrorKind::DeviceFailed, [] { fake_device(); });
  EXPECT_EQ(none, "cuda:0: this machine has no CUDA device; `coshard doctor` says what is missing");
  EXPECT_EQ(device_count(DeviceKind::Cuda), 0);
  FakeDriver::get().set_devices(2);
  CudaOptions third;
  third.index = 2;
  const std::string wrong = error_text(ErrorKind::DeviceFailed, [&] { fake_device(third); });
  EXPECT_EQ(wrong, "cuda:2: no such device; this machine has 2 devices, numbered from 0");
}

}  // namespace
}  // namespace coshard::testing
