// Uploads and downloads of any size.
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include "kernels/run.h"
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/staging.h"
#include "runtime/device/make_device.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

// The order in which a device is asked to copy to the host, c, and is seen to have done so, d.
// Create it before the device.
class DownloadOrder {
 public:
  DownloadOrder() : before_(cuda()) {
    table_ = below_ = before_;
    table_.MemcpyAsync = [](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
      if (kind == cudaMemcpyDeviceToHost) order_ += 'c';
      return below_.MemcpyAsync(to, from, bytes, kind, stream);
    };
    table_.EventQuery = [](cudaEvent_t event) {
      const cudaError_t status = below_.EventQuery(event);
      if (status == cudaSuccess) order_ += 'd';
      return status;
    };
    use_cuda(&table_);
  }
  ~DownloadOrder() { use_cuda(&before_); }
  DownloadOrder(const DownloadOrder&) = delete;
  DownloadOrder& operator=(const DownloadOrder&) = delete;
  static std::string take() { return std::exchange(order_, {}); }

 private:
  const CudaApi& before_;
  CudaApi table_{};
  static inline CudaApi below_{};
  static inline std::string order_;
};

std::vector<float> ascending(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

constexpr std::size_t kMillion = std::size_t{1} << 20;  // floats: 4 MiB, half of the ring

TEST(CudaDevice, ADownloadHasEightSlotsInFlight) {
  const DownloadOrder order;
  const auto device = fake_device();
  const std::vector<float> values = ascending(3 * kMillion, 0);
  const Numbers x(*device, values.size());
  x.set(values);
  x.get();  // waits for the upload's slots
  DownloadOrder::take();
  EXPECT_EQ(x.get(), values);
  EXPECT_EQ(DownloadOrder::take(), "ccccccccdcdcdcdcdddddddd");
}

TEST(CudaDevice, ADownloadThatFailsLeavesNoSlotInUse) {
  FakeDriver& driver = FakeDriver::get();
  driver.set_eagerness(0);  // what is in flight runs when it is waited for
  for (int after = 0; after < 4; ++after) {
    const auto device = fake_device();
    const std::vector<float> values = ascending(3 * kMillion, 0), other = ascending(64, 7);
    const Numbers x(*device, values.size()), y(*device, other.size());
    x.set(values);
    device->synchronize();
    driver.set_fault({.call = "EventQuery", .after = after, .error = cudaErrorLaunchFailure});
    EXPECT_THROW(x.get(), Error);
    driver.clear_faults();
    for (std::size_t i = 0; i < StagingRing::kSlots; ++i) y.set(other);
    EXPECT_EQ(y.get(), other);
    EXPECT_EQ(x.get(), values);
  }
  driver.set_eagerness(0.15);
}

TEST(CudaDevice, UploadsAndDownloadsMoreThanTheStagingRingHolds) {
  const auto device = fake_device();
  const std::vector<float> values = ascending(3 * kMillion, 0);  // 12 MiB; the ring has 8
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
