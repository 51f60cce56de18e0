// What `<<` shows of a tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/support/grouped_numbers.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

std::string shown(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

// A number converts to a shape, and so does what converts to a number.
TEST(Print, OfAShapeIsNoRivalToThatOfWhatConvertsToANumber) {
  const std::atomic<int> count{3};
  std::ostringstream out;
  out << count << ' ' << Shape{2, 3};
  EXPECT_EQ(out.str(), "3 [2,3]");
}

// The stream is the program's, with its locale.
TEST(Print, IsAlikeInEveryLocale) {
  on_ranks(1, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    const testing::GroupedNumbers grouped;
    std::ostringstream out;
    out << Shape{1024, 2048} << ' ' << full({1}, 12345.5) << ' ' << zeros({1000, 1}).raw_local();
    out << mesh << StridedShard(0, 4096) << Layout(Shard(0));
    const std::string shown = out.str();
    EXPECT_EQ(shown.rfind("[1024,2048] [12345.5000]\nf32[1] ", 0), 0U) << shown;
    EXPECT_NE(shown.find("f32[1000,1]tp=1_S(0,4096)S(0)"), std::string::npos) << shown;
    co_return;
  });
}

TEST(Print, ShowsValuesThenDtypeAndShape) {
  on_ranks(1, [](World& world) -> Task<void> {
    EXPECT_EQ(shown(counting(world, {2, 3})), "[[1., 2., 3.],\n [4., 5., 6.]]\nf64[2,3]");
    EXPECT_EQ(shown(counting(world, {2, 1, 2})), "[[[1., 2.]],\n\n [[3., 4.]]]\nf64[2,1,2]");
    EXPECT_EQ(shown(Tensor::from_values(world.device(), {3}, DType::F32, {0.5, -1.25, 3})),
              "[ 0.5000, -1.2500,  3.0000]\nf32[3]");
    EXPECT_EQ(shown(Tensor::from_values(world.device(), {2}, DType::F32, {1e-5, 2})),
              "[1.0000e-05, 2.0000e+00]\nf32[2]");
    EXPECT_EQ(shown(arange(3)), "[0, 1, 2]\ni64[3]");
    EXPECT_EQ(shown(arange(3) > 1), "[false, false,  true]\nbool[3]");
    EXPECT_EQ(shown(full({}, 2)), "2. f32[]");
    EXPECT_EQ(shown(zeros({0, 3})), "[]\nf32[0,3]");
    EXPECT_EQ(shown(Tensor()), "undefined");
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(shown(Tensor::from_values(world.device(), {3}, DType::F32,
                                        {nan, 1, -std::numeric_limits<double>::infinity()})),
              "[ nan,   1., -inf]\nf32[3]");
    co_return;
  });
}

TEST(Print, LeavesOutTheMiddleOfALargeTensor) {
  on_ranks(1, [](World& world) -> Task<void> {
    EXPECT_EQ(shown(arange(2000)), "[   0,    1,    2, ..., 1997, 1998, 1999]\ni64[2000]");
    const std::string large = shown(zeros({40, 50}));
    EXPECT_EQ(std::count(large.begin(), large.end(), '\n'), 7);
    EXPECT_NE(large.find("[0., 0., 0., ..., 0., 0., 0.]"), std::string::npos) << large;
    EXPECT_NE(large.find("\n ...,\n"), std::string::npos) << large;
    co_return;
  });
}

TEST(Print, OfADTensorShowsThisRanksPartAndSaysSo) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    CountingObserver seen(world);
    EXPECT_EQ(shown(x), world.rank() == 0 ? "[1., 2.]\nrank 0's shard [2] of f64[4] S(0) on tp=2"
                                          : "[3., 4.]\nrank 1's shard [2] of f64[4] S(0) on tp=2");
    EXPECT_EQ(shown(ones(mesh, {1})), "[1.]\nf32[1] R on tp=2");
    EXPECT_EQ(shown(x.sum()), world.rank() == 0
                                  ? "3. rank 0's partial value [] of f64[] P(sum) on tp=2"
                                  : "7. rank 1's partial value [] of f64[] P(sum) on tp=2");
    EXPECT_EQ(seen.total(), 0);
    const Redistribution flying = x.redistribute(Replicate());
    EXPECT_EQ(shown(flying.tensor()), "f64[4] R on tp=2 (in flight)");
    co_await flying;
    EXPECT_EQ(shown(flying.tensor()), "[1., 2., 3., 4.]\nf64[4] R on tp=2");
  });
}

TEST(Print, OfARankOutsideTheMeshShowsNoValues) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh one = DeviceMesh::from_ranks(world, {0}, {1}, {"tp"});
    EXPECT_EQ(shown(ones(one, {1})),
              world.rank() == 0 ? "[1.]\nf32[1] R on tp=1" : "f32[1] R on tp=1");
    co_return;
  });
}

TEST(Print, ErrorsShowADescriptionInOneLine) {
  on_ranks(1, [](World& world) -> Task<void> {
    try {
      matmul(counting(world, {2, 3}), counting(world, {2, 3}));
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
    EXPECT_EQ(str_cat("of ", counting(world, {2})), "of f64[2]");
    co_return;
  });
}

}  // namespace
}  // namespace coshard
