// How many kernels an operator launches, with how many blocks, and what a device caches.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/tape/grad_mode.h"
#include "kernels/cuda/cuda.h"
#include "runtime/device/cuda/api.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

template <class F>
std::uint64_t launches(F&& f) {
  FakeDriver::get().reset_counts();
  f();
  return FakeDriver::get().calls("Launch");
}

// Records the blocks of every launch, by the launch's name. Create it before the device.
class Recorder {
 public:
  Recorder() : before_(cuda()) {
    table_ = before_;
    blocks_.clear();
    launch_ = before_.Launch;
    table_.Launch = [](const CudaLaunch& launch) {
      blocks_[launch.name] = launch.blocks;
      return launch_(launch);
    };
    use_cuda(&table_);
  }
  ~Recorder() { use_cuda(&before_); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  static void clear() { blocks_.clear(); }
  static std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& [name, blocks] : blocks_) names.push_back(name);
    return names;
  }
  static std::uint32_t blocks(const std::string& name) { return std::exchange(blocks_[name], 0); }

 private:
  const CudaApi& before_;
  CudaApi table_{};
  static inline std::map<std::string, std::uint32_t> blocks_;
  static inline cudaError_t (*launch_)(const CudaLaunch&);
};

TEST(Launches, CrossEntropyReadsTheLogitsInOneKernelForward) {
  const Recorder recorder;
  const auto device = fake_device();
  const NoGradGuard no_grad;
  const Tensor logits = zeros(device, Shape{6, 64}, DType::F32);
  const Tensor targets = zeros(device, Shape{6}, DType::I64);
  Recorder::clear();
  cross_entropy_rows(logits, targets, Reduction::None);
  const std::vector<std::string> want = {"cross entropy", "cross entropy loss"};
  EXPECT_EQ(Recorder::names(), want);
}

// One long line, and a few columns: not one block per line.
TEST(Launches, FewLongLinesAreWorkForTheWholeDevice) {
  const Recorder recorder;
  const auto device = fake_device();
  const Tensor x = zeros(device, Shape{1 << 19}), one = zeros(device, Shape{8});
  const Tensor ids = zeros(device, Shape{1 << 17}, DType::I64);
  const Tensor ones = zeros(device, Shape{1 << 17}), dx = zeros(device, Shape{1 << 19});
  const Tensor count = zeros(device, Shape{1}, DType::I64), few = zeros(device, Shape{4096});
  const auto blocks = [&](const char* name, const auto& args) {
    kernels::cuda::run(*device, args);
    return Recorder::blocks(name);
  };
  const auto all = static_cast<std::uint32_t>(device->multiprocessors());
  using kernels::ReduceDim;
  using kernels::ReduceGrad;
  using kernels::ReduceOp;
  for (const auto& [extent, inner] : {std::pair(1 << 19, 1), {1 << 16, 8}}) {
    const ReduceDim sum{ReduceOp::Sum, DType::F32, 1, extent, inner, x.data(), one.data(), 0};
    EXPECT_GE(blocks("reduce", sum), all);
    for (const ReduceOp op : {ReduceOp::Max, ReduceOp::AbsPower, ReduceOp::LogSumExp}) {
      const ReduceGrad slopes{op, DType::F32, 1, extent, inner, one.data(), x.data(), dx.data(), 3};
      EXPECT_GE(blocks("reduce gradient", slopes), all);
    }
  }
  const ReduceDim ints{ReduceOp::Max, DType::I64, 1, 1 << 17, 1, ids.data(), count.data(), 0};
  kernels::cuda::run(*device, ints);
  EXPECT_GE(Recorder::blocks("reduce integers in chunks"), all);
  for (const bool add : {false, true}) {
    const kernels::Scatter into{view_of(few), view_of(ones), view_of(ids), 0, add};
    EXPECT_GE(blocks("scatter", into), all);
  }
}

class RopeCalls {
 public:
  explicit RopeCalls(const std::shared_ptr<CudaDevice>& device)
      : device_(*device), x_(zeros(device, Shape{1, 4, 2, 8})) {}
  void operator()(std::int64_t first, double theta = 1e4, bool inverse = false) const {
    const kernels::View view = view_of(x_);
    kernels::cuda::run(device_, kernels::Rope{view, view, first, theta, inverse});
  }

 private:
  CudaDevice& device_;
  Tensor x_;
};

TEST(Launches, TheRotaryTableIsBuiltOnce) {
  const auto device = fake_device();
  const RopeCalls rope(device);
  EXPECT_EQ(launches([&] { rope(0); }), 2U);
  EXPECT_EQ(launches([&] { rope(0); }), 1U);
  EXPECT_EQ(launches([&] { rope(0, 1e4, true); }), 1U);
  // A sequence that grows by a token a call.
  const auto many = launches([&] {
    for (std::int64_t first = 0; first < 1024; ++first) rope(first);
  });
  EXPECT_LE(many, 1024U + 8U);
}

TEST(Launches, FewRotaryTablesAreKept) {
  const auto device = fake_device();
  const RopeCalls rope(device);
  for (int i = 0; i < 8; ++i) rope(0, 1e4 + i);
  const std::size_t before = device->memory().in_use;
  for (int i = 8; i < 40; ++i) rope(0, 1e4 + i);
  EXPECT_EQ(device->memory().in_use, before);
}

}  // namespace
}  // namespace coshard::testing
