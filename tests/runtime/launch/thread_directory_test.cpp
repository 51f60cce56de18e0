// Ranks that are threads of this process: who they are, and who is alive.
#include <gtest/gtest.h>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/launch/rank_directory.h"

namespace coshard {
namespace {

TEST(ThreadDirectoryOf, AllRanksAreHereAndAliveUntilTheyLeave) {
  WorldOptions options;
  options.ranks = 3;
  const std::unique_ptr<RankDirectory> directory = make_directory(options);
  EXPECT_EQ(directory->size(), 3);
  EXPECT_EQ(directory->here(), (std::vector<int>{0, 1, 2}));
  EXPECT_NE(directory->thread_group(), nullptr);
  EXPECT_EQ(directory->control(2)->rank(), 2);
  EXPECT_TRUE(directory->alive(1));
  directory->leave(1);
  EXPECT_FALSE(directory->alive(1));
  EXPECT_TRUE(directory->alive(0));
}

TEST(ThreadDirectoryOf, AFailureEndsEveryWaitWithItsCause) {
  WorldOptions options;
  options.ranks = 2;
  const std::unique_ptr<RankDirectory> directory = make_directory(options);
  const auto control = directory->control(0);
  Work barrier = control->issue(Collective());
  directory->fail("rank 1: out of luck");
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
