// The ends of what operators accept, and layouts and memory that they keep.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::refusal;

// What minds neither where a part lies nor whether it is one range passes it through.
TEST(Edges, StridedPartsStayWhereTheyAre) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Layout strided(StridedShard(1, 2));
    const DTensor x = DTensor(
        redistribute(distribute_tensor(counting(world, {2, 8, 5}), mesh, Replicate(), std::nullopt),
                     strided)
            .tensor());
    const DTensor weight = distribute_tensor(counting(world, {5}), mesh, Replicate(), std::nullopt);
    CountingObserver seen(world);
    EXPECT_EQ(rms_norm(x, weight).layout(), strided);
    const DTensor index = mul(to(x, DType::I64), std::int64_t{0});
    EXPECT_EQ(scatter(x, 0, index, 0.5).layout(), strided);
    EXPECT_EQ(scatter(x, 0, index, x).layout(), strided);
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

// Also where they move nothing.
TEST(Edges, PadAndRollGiveCopies) {
  alone([](World& world) {
    const Tensor x = counting(world, {2, 3});
    zero_(roll(x, 3, 1));
    for (const Margins& margins : {Margins{0, 0}, Margins{0, -1}, Margins{}, Margins{1, 0}}) {
      const Tensor y = pad(x, margins);
      zero_(y);
      EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    }
  });
}

TEST(Edges, RefusalsNameTheOperatorThatWasCalled) {
  alone([](World& world) {
    const Tensor x = counting(world, {3, 4}), ints = ones(world, {2}, DType::I64);
    EXPECT_EQ(refusal([&] { var(ints); }), "var: i64[2] is none of f32, f64, bf16 and f16");
    EXPECT_EQ(
        refusal([&] {
          einsum("abcde,fghi->abcdefghi", ones(world, {1, 1, 1, 1, 1}), ones(world, {1, 1, 1, 1}));
        }),
        "einsum: more than 8 dimensions in the result of abcde,fghi->abcdefghi");
    EXPECT_EQ(refusal([&] { stdev(ints); }), "stdev: i64[2] is none of f32, f64, bf16 and f16");
    EXPECT_EQ(refusal([&] { masked_fill(x, {}, 1); }), "masked_fill: the condition is undefined");
    // A device tells where its results are read.
    const std::string gathered = refusal([&] { index_select(x, 0, ints * 7).to_vector(); });
    EXPECT_EQ(gathered.find("gather: index 7 is out of bounds for a dimension of size 3"), 0U);
    const Tensor at = full(world, {1, 1}, -1, DType::I64);
    const std::string scattered = refusal([&] { scatter(x, 0, at, 2).to_vector(); });
    EXPECT_EQ(scattered.find("scatter: index -1 is out of bounds for a dimension of size 3"), 0U);
  });
}

// As PyTorch: "value cannot be converted to type int64_t without overflow".
TEST(Edges, NumbersThatADtypeCannotHoldAreRefused) {
  alone([](World& world) {
    const double nan = std::nan(""), inf = INFINITY;
    const Tensor ints = ones(world, {2}, DType::I64), mask = ones(world, {2}, DType::Bool);
    EXPECT_EQ(refusal([&] { full(world, {2}, nan, DType::I64); }), "full: nan does not fit i64");
    EXPECT_EQ(refusal([&] { full(world, {2}, 3e9, DType::I32); }), "full: 3e+09 does not fit i32");
    EXPECT_EQ(refusal([&] { full(world, {2}, 1e300); }), "full: 1e+300 does not fit f32");
    EXPECT_EQ(refusal([&] { fill_(ints, inf); }), "fill_: inf does not fit i64");
    EXPECT_EQ(refusal([&] { full_like(ints, nan); }), "full_like: nan does not fit i64");
    EXPECT_EQ(refusal([&] { masked_fill(ints, mask, nan); }), "masked_fill: nan does not fit i64");
    EXPECT_EQ(refusal([&] { masked_fill_(ints, mask, 1e30); }),
              "masked_fill_: 1e+30 does not fit i64");
    EXPECT_EQ(refusal([&] { scatter(ints, 0, ints * 0, nan); }), "scatter: nan does not fit i64");
    EXPECT_EQ(refusal([&] { pad(ints, {1, 1}, nan); }), "pad: nan does not fit i64");
    EXPECT_EQ(refusal([&] { Tensor::from_values(world.device(), {1}, DType::I32, {nan}); }),
              "from_values: nan does not fit i32");
    EXPECT_EQ(full(world, {1}, -0x1p63, DType::I64).item(), -0x1p63);
    EXPECT_EQ(full(world, {1}, -0x1p31, DType::I32).item(), -0x1p31);
    EXPECT_EQ(full(world, {1}, inf, DType::F16).item(), inf);
    EXPECT_EQ(full(world, {1}, nan, DType::Bool).item(), 1);
    EXPECT_EQ(fill_(ints, 2.5).to_vector(), (std::vector<double>{2, 2}));
  });
}

}  // namespace
}  // namespace coshard
