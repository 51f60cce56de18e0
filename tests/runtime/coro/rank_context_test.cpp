// Values of a rank: made at first use, destroyed newest first, with the rank.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {
namespace {

std::vector<int> gone;
struct Destroyed {
  int value = 0;
  ~Destroyed() { gone.push_back(value); }
};
const RankLocal<Destroyed> first, second;

TEST(RankContextOf, EachRankHasValuesOfItsOwn) {
  RankContext a, b;
  RankContext* const before = RankContext::exchange(&a);
  first->value = 1;
  RankContext::exchange(&b);
  EXPECT_EQ(first->value, 0);
  first->value = 2;
  EXPECT_EQ(RankContext::exchange(&a), &b);
  EXPECT_EQ(first->value, 1);
  RankContext::exchange(before);
}

TEST(RankContextOf, TheEndDestroysTheNewestValueFirstAndLeavesTheContextUsable) {
  gone.clear();
  RankContext rank;
  RankContext* const before = RankContext::exchange(&rank);
  second->value = 2;
  first->value = 1;
  rank.end();
  EXPECT_EQ(gone, (std::vector<int>{1, 2}));
  EXPECT_EQ(first->value, 0);
  rank.end();
  EXPECT_EQ(gone, (std::vector<int>{1, 2, 0}));
  RankContext::exchange(before);
}

TEST(RankContextOf, ADestroyedContextIsNoThreadsCurrentOne) {
  std::thread([] {
    {
      RankContext rank;
      RankContext::exchange(&rank);
      EXPECT_EQ(&RankContext::current(), &rank);
    }
    EXPECT_EQ(&RankContext::current(), &RankContext::current());
    EXPECT_EQ(first->value, 0);
  }).join();
}

}  // namespace
}  // namespace coshard
