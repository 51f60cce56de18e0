// rotary_embedding: the rotate-half form, positions of cut sequences.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::counting;
using testing::CountingObserver;
using testing::expect_near;
using testing::expect_values;
using testing::on_ranks;
using testing::placed;
using testing::refusal;
using testing::values;

TEST(RotaryEmbedding, TurnsTheHalvesByTheAngleOfThePosition) {
  alone([](World& world) {
    Tensor x = values(world, {1, 2, 1, 2}, {1, 0, 1, 0});  // two positions of one head
    x.set_requires_grad(true);
    const Tensor y = rotary_embedding(x, 10000, 3);
    expect_near(y, {std::cos(3), std::sin(3), std::cos(4), std::sin(4)}, 1e-6);
    run_backward(sum(y));
    expect_near(x.grad(),
                {std::cos(3) + std::sin(3), std::cos(3) - std::sin(3), std::cos(4) + std::sin(4),
                 std::cos(4) - std::sin(4)},
                1e-6);
    EXPECT_EQ(refusal([&] { rotary_embedding(counting(world, {1, 1, 1, 3})); }).find("rotary"), 0U);
  });
}

TEST(RotaryEmbedding, TakesFrequenciesAsData) {
  on_ranks(2, [](World& world) -> Task<void> {
    const RotaryTable table({1, 0.25F}, 2);
    Tensor x = values(world, {1, 1, 1, 4}, {1, 3, 0, 0});
    x.set_requires_grad(true);
    const Tensor y = rotary_embedding(x, table, 5);
    expect_near(y, {2 * std::cos(5), 6 * std::cos(1.25), 2 * std::sin(5), 6 * std::sin(1.25)},
                1e-5);
    run_backward(sum(y));
    expect_near(x.grad(),
                {2 * (std::cos(5) + std::sin(5)), 2 * (std::cos(1.25) + std::sin(1.25)),
                 2 * (std::cos(5) - std::sin(5)), 2 * (std::cos(1.25) - std::sin(1.25))},
                1e-5);
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"cp"});
    const DTensor got = rotary_embedding(placed(world, mesh, {1, 5, 2, 4}, Shard(1)), table);
    expect_values(got, rotary_embedding(counting(world, {1, 5, 2, 4}), table), "by a table");
    const std::string text = refusal([&] {
      rotary_embedding(counting(world, {1, 1, 1, 6}), table);
    });
    EXPECT_NE(text.find("2 frequencies are not half of 6"), std::string::npos) << text;
    co_return;
  });
}

TEST(RotaryEmbedding, ACutSequenceHasThePositionsOfTheWhole) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"cp"});
    const Tensor want = rotary_embedding(counting(world, {1, 5, 2, 4}));
    CountingObserver seen(world);
    const DTensor got = rotary_embedding(placed(world, mesh, {1, 5, 2, 4}, Shard(1)));
    EXPECT_EQ(got.layout(), Layout(Shard(1)));
    EXPECT_EQ(seen.total(), 0);
    expect_values(got, want, "rotary_embedding");
    co_return;
  });
}

}  // namespace
}  // namespace coshard
