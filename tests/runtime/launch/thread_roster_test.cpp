// Ranks that are threads of this process: who they are, and who is alive.
#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/launch/roster.h"

namespace coshard {
namespace {

TEST(ThreadRosterOf, AllRanksAreHereAndAliveUntilTheyLeave) {
  WorldOptions options;
  options.ranks = 3;
  const std::unique_ptr<Roster> roster = make_roster(options);
  EXPECT_EQ(roster->size(), 3);
  EXPECT_EQ(roster->here(), (std::vector<int>{0, 1, 2}));
  EXPECT_NE(roster->thread_group(), nullptr);
  EXPECT_EQ(roster->control(2)->rank(), 2);
  EXPECT_TRUE(roster->alive(1));
  roster->leave(1);
  EXPECT_FALSE(roster->alive(1));
  EXPECT_TRUE(roster->alive(0));
}

TEST(ThreadRosterOf, AFailureEndsEveryWaitWithItsCause) {
  WorldOptions options;
  options.ranks = 2;
  const std::unique_ptr<Roster> roster = make_roster(options);
  const auto control = roster->control(0);
  Work barrier = control->issue(Collective());
  roster->fail("rank 1: out of luck");
  try {
    barrier.wait();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed);
    EXPECT_NE(std::string(error.what()).find("out of luck"), std::string::npos);
  }
}

}  // namespace
}  // namespace coshard
