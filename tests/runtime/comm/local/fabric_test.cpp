// What joins ranks of one process: who is here, who has left, and a failure that reaches all.
#include <gtest/gtest.h>

#include <array>

#include <coshard/runtime/error.h>
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::test {
namespace {

TEST(Fabric, RefusesWhatNoWorldHas) {
  EXPECT_THROW(LocalFabric(0), Error);
  FabricOptions options;
  options.progress_threads = -1;
  EXPECT_THROW(LocalFabric(1, "w", options), Error);
  LocalFabric fabric(2);
  EXPECT_THROW(fabric.communicator(2), Error);
  EXPECT_THROW(fabric.communicator(-1), Error);
}

TEST(Fabric, GivesEachRankItsCommunicatorAndKnowsWhoLeft) {
  LocalFabric fabric(3, "tp");
  const auto second = fabric.communicator(1);
  EXPECT_EQ(second->rank(), 1);
  EXPECT_EQ(second->size(), 3);
  EXPECT_EQ(second->name(), "tp");
  EXPECT_FALSE(fabric.left(2));
  fabric.leave(2);
  EXPECT_TRUE(fabric.left(2));
  EXPECT_FALSE(fabric.left(1));
  Work barrier = second->issue(Collective());
  EXPECT_THROW(barrier.wait(), Error);
  EXPECT_NE(fabric.last_seen(1).find("barrier"), std::string::npos);
}

TEST(Fabric, APoisonReachesGroupsMadeBeforeAndAfter) {
  LocalFabric fabric(1);
  const auto world = fabric.communicator(0);
  const std::array<int, 1> self{0};
  const auto before = world->subgroup(self, "before");
  fabric.poison("first");
  fabric.poison("second");
  const auto after = world->subgroup(self, "after");
  for (const auto& group : {world, before, after}) {
    try {
      group->issue(Collective()).wait();
      ADD_FAILURE() << group->name();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::CommFailed);
      EXPECT_NE(std::string(error.what()).find("first"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace coshard::test
