// Uploads and downloads of any size.
#include <numeric>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include "kernels/run.h"
#include "runtime/device/make_device.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

TEST(CudaDevice, UploadsAndDownloadsMoreThanTheStagingRingHolds) {
  const auto device = fake_device();
  std::vector<float> values(std::size_t{3} << 20);  // 12 MiB; the ring has 8
  std::iota(values.begin(), values.end(), 0.0F);
  const Numbers x(*device, values.size());
  x.set(values);
  EXPECT_EQ(x.get(), values);
}

TEST(CudaDevice, TheHostsMemoryMayBeReusedAfterAnUpload) {
  const auto device = fake_device();
  const Numbers x(*device, 4);
  std::vector<float> values = {1, 2, 3, 4};
  x.set(values);
  values.assign(4, 0);
  EXPECT_EQ(x.get(), (std::vector<float>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace coshard::testing
