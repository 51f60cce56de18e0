// What is decided for a call: layouts wanted and given, shapes, and calls that are refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "dtensor/ops/decision.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::placed;
using testing::refusal;

TEST(Decide, NamesWhatMustMoveAndTheShapesThatFollow) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const auto all = all_operators();
    const OpDef& matmul_op =
        **std::ranges::find_if(all, [](auto* op) { return op->name == "matmul"; });
    const std::vector<Tensor> in{placed(world, mesh, {4, 6}, Shard(1)),
                                 placed(world, mesh, {6, 2}, Shard(0))};
    const auto made = decide(matmul_op, in, {}, false);
    EXPECT_FALSE(made->changes);
    EXPECT_EQ(made->outputs, 1);
    EXPECT_EQ(made->out_shape[0], (Shape{4, 2}));
    EXPECT_EQ(made->out_spec[0]->layout, Layout(Partial()));
    EXPECT_FALSE(made->foreign);
    EXPECT_FALSE(made->absent);
    co_return;
  });
}

TEST(Decide, RefusesTwoMeshesAndSaysSo) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh one = init_device_mesh(world, {2}, {"a"}),
                     two = init_device_mesh(world, {2}, {"b"});
    const std::string text =
        refusal([&] { add(placed(world, one, {4}, Shard(0)), placed(world, two, {4}, Shard(0))); });
    EXPECT_NE(text.find("mesh"), std::string::npos) << text;
    co_return;
  });
}

}  // namespace
}  // namespace coshard
