// All operators by name, and rules that stand for theirs.
#include <gtest/gtest.h>

#include <algorithm>

#include "dtensor/ops/decision.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::placed;
using testing::refusal;

TEST(Registry, HasEveryOperatorOnceInTheOrderOfNames) {
  const auto all = all_operators();
  ASSERT_GT(all.size(), 60U);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i - 1]->name, all[i]->name);
}

TEST(Registry, ARegisteredRuleHoldsForItsOperatorAlone) {
  alone([](World& world) {
    const auto nothing = [](std::span<const TensorInfo>, const Attrs&) {
      Rule rule;
      rule.in = {".."};
      rule.out = {".."};
      return rule;
    };
    register_sharding("triangle", nothing);
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    const auto all = all_operators();
    const auto named = [&](std::string_view name) {
      return *std::ranges::find_if(all, [&](const OpDef* op) { return op->name == name; });
    };
    EXPECT_TRUE(has_registered_rule(*named("triangle")));
    EXPECT_FALSE(has_registered_rule(*named("flip")));
    EXPECT_EQ(tril(placed(world, mesh, {2, 2}, Shard(0))).layout(), Layout(Replicate()));
  });
}

TEST(Registry, RefusesUnknownNamesNoRuleAndWhatWasUsed) {
  alone([](World& world) {
    const auto rule = [](std::span<const TensorInfo>, const Attrs&) { return Rule(); };
    EXPECT_NE(refusal([&] { register_sharding("no such", rule); }).find("no such"),
              std::string::npos);
    EXPECT_NE(refusal([&] { register_sharding("triangle", nullptr); }), "accepted");
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"tp"});
    tril(placed(world, mesh, {2, 2}, Shard(0)));
    const std::string used = refusal([&] { register_sharding("triangle", rule); });
    EXPECT_EQ(used.find("no operator"), std::string::npos);
    EXPECT_NE(used.find("triangle"), std::string::npos);
  });
}

}  // namespace
}  // namespace coshard
