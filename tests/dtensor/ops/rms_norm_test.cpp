// rms_norm: values and layouts.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::placed;
using testing::without_moving;

TEST(NormLayout, ASequenceCutLeavesTheWeightGradientPartial) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    DTensor weight = placed(world, mesh, {5}, Replicate());
    weight.set_requires_grad(true);
    const DTensor y = rms_norm(placed(world, mesh, {2, 3, 5}, Shard(1)), weight);
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
    run_backward(y, placed(world, mesh, {2, 3, 5}, Shard(1)));
    EXPECT_EQ(weight.grad().layout(), Layout(Partial()));
  });
}

}  // namespace
}  // namespace coshard
