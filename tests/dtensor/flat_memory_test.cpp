// Programs that run for long: what a rank remembers does not grow with them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

constexpr double kMostGrowth = 10;  // MB, for each rank of the process

double resident_mb() {
  std::ifstream statm("/proc/self/statm");
  long pages = 0, resident = 0;
  statm >> pages >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) * 1e-6;
}

// MB that `step(i)` adds from step `warm` to step `steps`.
template <class Step>
double growth(int warm, int steps, const Step& step) {
  for (int i = 0; i < warm; ++i) step(i);
  const double before = resident_mb();
  for (int i = warm; i < steps; ++i) step(i);
  return resident_mb() - before;
}

// The host's memory, as it is without a sanitizer, which keeps what was freed.
class FlatMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized || !testing::on_cpu()) GTEST_SKIP() << "measured on the cpu, unsanitized";
  }
#if defined(__has_feature)
  static constexpr bool kSanitized =
      __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
  static constexpr bool kSanitized = false;
#endif
};

TEST_F(FlatMemory, AHundredThousandShapes) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    const NoGradGuard no_grad;
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    const auto step = [&](int i) {
      Shape shape;
      for (int rest = i; shape.size() < 5; rest /= 10) shape.push_back(1 + rest % 10);
      const DTensor x = empty(mesh, Shard(0), shape);
      static_cast<void>(reshape(x, {x.numel()}));
      static_cast<void>(redistribute(x, Layout(Shard(1))).tensor());
    };
    EXPECT_LE(growth(2000, 100'000, step), kMostGrowth);
    co_return;
  });
}

TEST_F(FlatMemory, AThousandSequenceLengthsOfATrainingStep) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor w = distribute_tensor(testing::counting(world, {8, 8}, DType::F32, 1e-2), mesh,
                                  Shard(0), std::nullopt);
    w.set_requires_grad(true);
    double before = 0;
    for (int i = 0; i < 1000; ++i) {  // each length once, the longest first
      if (i == 50) before = resident_mb();
      const DTensor x = ones(mesh, Replicate(), Shape{2, 1 + (i * 397 + 999) % 1000, 8});
      DTensor h = x;
      for (int layer = 0; layer < 4; ++layer) {
        h = softmax(linear(h, w), -1);
        h = dropout(add(h.redistribute(Replicate()).tensor(), x), 0.1);
      }
      const Tensor loss = sum(h);
      co_await backward(loss);
      w.set_grad(Tensor());
    }
    EXPECT_LE(resident_mb() - before, kMostGrowth * world.size());
  });
}

TEST_F(FlatMemory, AHundredThousandMeshes) {
  testing::on_ranks(1, [](World& world) -> Task<void> {
    const NoGradGuard no_grad;
    const DeviceMesh whole = init_device_mesh(world, {1}, {"whole"});
    const DTensor x = ones(whole, Replicate(), Shape{2, 2});
    const auto step = [&](int i) {
      const DeviceMesh mesh = init_device_mesh(world, {1, 1}, {"dp", "tp"});
      const DTensor y =
          empty(i % 2 ? mesh : mesh["tp"], Layout::filled(1 + i % 2, Shard(0)), Shape{2, 2});
      static_cast<void>(add(y, y));
      static_cast<void>(mesh.flatten("flat"));
      if (i % 4 == 0) static_cast<void>(redistribute(x, mesh["dp"], Layout(Shard(0))).tensor());
    };
    EXPECT_LE(growth(2000, 100'000, step), kMostGrowth);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
