// What the gate is told of tensors, and what it gives them.
#include "dtensor/ops/row_choice.h"

#include <gtest/gtest.h>

#include <limits>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::shuffled;

// A link on which what a layer of these sizes sends takes about as long as its product, or no time.
const Link kFit{.latency = 0, .bytes_per_us = 1e3}, kFast{.latency = 0, .bytes_per_us = 1e12};

DTensor zeros_on(const DeviceMesh& mesh, Placement placement, const Shape& shape) {
  return zeros(mesh, Layout(placement), shape);
}
RowFactor sum_factor(const DeviceMesh& mesh, const Shape& x = {512, 1024}) {
  return {zeros_on(mesh, Shard(-1), x), zeros_on(mesh, Shard(1), {256, x.back()})};
}
DeviceMesh linked(World& world, const Link& link) {
  return init_device_mesh(world, {world.size()}, {"tp"}).with_links({link});
}

TEST(RowChoice, SendsRowsOverALinkThatIsKnownAndWorthIt) {
  if (!testing::on_cpu()) GTEST_SKIP() << "a GPU is too fast for this link";
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = linked(world, kFit);
    const RowFactor factor = sum_factor(mesh);
    const auto scattered = sum_choice(std::span(&factor, 1), Shard(0), Overlap::Auto, 0);
    EXPECT_TRUE(scattered && scattered->dim == 0 && scattered->pieces >= 1);
    const auto reduced = sum_choice(std::span(&factor, 1), Replicate(), Overlap::Auto, 0);
    EXPECT_TRUE(reduced && reduced->dim == -1 && reduced->pieces >= 2);
    EXPECT_FALSE(sum_choice(std::span(&factor, 1), Shard(0), Overlap::Off, 0));
    EXPECT_FALSE(sum_choice(std::span(&factor, 1), Shard(1), Overlap::Always, 0));  // columns
    co_return;
  });
}

TEST(RowChoice, IsNoneWhereOtherWorkHidesTheCollective) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = linked(world, kFit);
    const RowFactor factor = sum_factor(mesh);
    EXPECT_FALSE(sum_choice(std::span(&factor, 1), Shard(0), Overlap::Auto, 1'000'000'000));
    EXPECT_FALSE(sum_choice(std::span(&factor, 1), Replicate(), Overlap::Auto, 1'000'000'000));
    co_return;
  });
}

TEST(RowChoice, IsNoneOfALinkThatIsFastOrUnknownUnlessAsked) {
  on_ranks(2, [](World& world) -> Task<void> {
    const RowFactor fast = sum_factor(linked(world, kFast));
    EXPECT_FALSE(sum_choice(std::span(&fast, 1), Shard(0), Overlap::Auto, 0));
    const RowFactor unknown = sum_factor(init_device_mesh(world, {2}, {"tp"}));
    EXPECT_FALSE(may_send_rows(unknown.x, Overlap::Auto));
    EXPECT_FALSE(sum_choice(std::span(&unknown, 1), Shard(0), Overlap::Auto, 0));
    const auto asked = sum_choice(std::span(&unknown, 1), Shard(0), Overlap::Always, 0);
    EXPECT_TRUE(asked && asked->exposed_ns == std::numeric_limits<std::int64_t>::max());
    co_return;
  });
}

TEST(RowChoice, OfSeveralFactorsNeedsThemAllToBeSums) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = linked(world, kFit);
    const RowFactor sum = sum_factor(mesh);
    const RowFactor whole{zeros_on(mesh, Replicate(), {512, 1024}),
                          zeros_on(mesh, Replicate(), {256, 1024})};
    const RowFactor both[] = {sum, sum}, mixed[] = {sum, whole};
    EXPECT_TRUE(sum_choice(both, Shard(0), Overlap::Always, 0));
    EXPECT_FALSE(sum_choice(mixed, Shard(0), Overlap::Always, 0));
    co_return;
  });
}

TEST(RowChoice, OfAnArrivingGradientIsItsShards) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor weight = zeros_on(mesh, Shard(1), {64, 32});
    const Redistribution issued = zeros_on(mesh, Shard(0), {10, 64}).redistribute(Replicate());
    const RowFactor factor = gradient_factor(issued.tensor(), weight);
    const auto choice = arriving_choice(factor, Overlap::Always, 0);
    EXPECT_TRUE(choice && choice->dim == 0);
    const DTensor there = co_await issued;
    EXPECT_FALSE(arriving_choice(gradient_factor(there, weight), Overlap::Always, 0));
  });
}

}  // namespace
}  // namespace coshard
