#include "dtensor/redistribute/plan.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

TEST(Plan, TheSameQuestionGivesTheSameCachedPlan) {
  testing::on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const auto spec = make_spec(mesh, Shard(0), {5, 4});
    EXPECT_EQ(plan_for(spec, Replicate(), DType::F32), plan_for(spec, Replicate(), DType::F32));
    EXPECT_EQ(plan_for(spec, Shard(-1), DType::F32), plan_for(spec, Shard(1), DType::F32));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
