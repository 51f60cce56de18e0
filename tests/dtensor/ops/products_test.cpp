#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::placed;
using testing::without_collectives;

TEST(Vectors, KeepTheirCutsThroughProducts) {
  without_collectives({2}, [](World& world, const DeviceMesh& mesh) {
    const DTensor m = placed(world, mesh, {3, 5}, Shard(0));
    const DTensor cut = placed(world, mesh, {5}, Shard(0));
    EXPECT_EQ(mv(m, placed(world, mesh, {5}, Replicate())).layout(), Layout(Shard(0)));
    EXPECT_EQ(dot(cut, cut).layout(), Layout(Partial()));
    const DTensor column = placed(world, mesh, {3}, Replicate());
    EXPECT_EQ(outer(cut, column).layout(), Layout(Shard(0)));
    EXPECT_EQ(outer(column, cut).layout(), Layout(Shard(1)));
  });
}

}  // namespace
}  // namespace coshard
