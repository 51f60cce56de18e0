// What joins ranks of one process: who is here, who has left, and a failure that reaches all.
#include <gtest/gtest.h>

#include <array>

#include <coshard/runtime/error.h>
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

TEST(ThreadGroupOf, RefusesWhatNoWorldHas) {
  EXPECT_THROW(ThreadGroup(0), Error);
  ThreadGroupOptions options;
  options.progress_threads = -1;
  EXPECT_THROW(ThreadGroup(1, "w", options), Error);
  ThreadGroup thread_group(2);
  EXPECT_THROW(thread_group.communicator(2), Error);
  EXPECT_THROW(thread_group.communicator(-1), Error);
}

TEST(ThreadGroupOf, GivesEachRankItsCommunicatorAndKnowsWhoLeft) {
  ThreadGroup thread_group(3, "tp");
  const auto second = thread_group.communicator(1);
  EXPECT_EQ(second->rank(), 1);
  EXPECT_EQ(second->size(), 3);
  EXPECT_EQ(second->name(), "tp");
  EXPECT_FALSE(thread_group.left(2));
  thread_group.leave(2);
  EXPECT_TRUE(thread_group.left(2));
  EXPECT_FALSE(thread_group.left(1));
  Work barrier = second->issue(Collective());
  EXPECT_THROW(barrier.wait(), Error);
  EXPECT_NE(thread_group.last_seen(1).find("barrier"), std::string::npos);
}

TEST(ThreadGroupOf, LastSawARankOnWhicheverCommunicatorItUsedLast) {
  ThreadGroup thread_group(2, "world");
  EXPECT_EQ(thread_group.last_seen(0), "has issued no collective yet");
  const auto world = thread_group.communicator(0);
  const std::array<int, 1> self{0};
  const auto alone = world->subgroup(self, "dp");
  const Work before = world->issue(Collective());
  alone->issue(Collective()).wait();
  EXPECT_NE(thread_group.last_seen(0).find("#0 barrier on dp[1] "), std::string::npos)
      << thread_group.last_seen(0);
  EXPECT_EQ(thread_group.last_seen(1), "has issued no collective yet");
}

TEST(ThreadGroupOf, APoisonReachesGroupsMadeBeforeAndAfter) {
  ThreadGroup thread_group(1);
  const auto world = thread_group.communicator(0);
  const std::array<int, 1> self{0};
  const auto before = world->subgroup(self, "before");
  thread_group.poison("first");
  thread_group.poison("second");
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
}  // namespace coshard::testing
