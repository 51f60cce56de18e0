// Calls of operators: what is cached, what is refused, and what plain tensors may stand beside.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/op.h>
#include "dtensor/mesh/bounded_cache.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::placed;
using testing::refusal;
using testing::Values;
using testing::values;

TEST(Dispatch, ASecondCallOfPlainTensorsDecidesNothing) {
  alone([](World& world) {
    const auto decisions = [] {
      for (const CacheSize& cache : cache_sizes())
        if (cache.name == "decisions") return cache.entries;
      return std::size_t{0};
    };
    const Tensor x = counting(world, {3, 2}), y = counting(world, {3, 2});
    add(x, y);
    const std::size_t once = decisions();
    EXPECT_GT(once, 0U);
    add(y, x);
    EXPECT_EQ(decisions(), once);
    add(x, counting(world, {2}));
    EXPECT_EQ(decisions(), once + 1);
  });
}

TEST(Dispatch, ExplicitRedistributionForbidsWhatWouldMove) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor rows = placed(world, mesh, {4, 4}, Shard(0));
    CountingObserver seen(world);
    {
      const ExplicitRedistribution scope;
      EXPECT_NE(refusal([&] { softmax(rows, 0); }).find("softmax"), std::string::npos);
      EXPECT_EQ(softmax(rows, 1).layout(), Layout(Shard(0)));
    }
    EXPECT_EQ(seen.total(), 0);
    softmax(rows, 0);
    EXPECT_EQ(seen.total(), 1);
    co_return;
  });
}

TEST(Dispatch, ANumberStandsBesideDTensorsAndOtherPlainTensorsDoNot) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = placed(world, mesh, {4}, Shard(0));
    EXPECT_EQ(add(x, values(world, {}, {10})).layout(), Layout(Shard(0)));
    EXPECT_NE(refusal([&] { add(x, values(world, {1}, {10})); }), "accepted");
    const ImplicitReplication scope;
    EXPECT_EQ(full_tensor(add(x, values(world, {1}, {10}))).to_vector(), (Values{11, 12, 13, 14}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
