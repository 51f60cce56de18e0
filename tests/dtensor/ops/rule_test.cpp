// Strategies of a rule: letters, contractions, what may not be cut, what is told by a layout.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/op.h>

namespace coshard {
namespace {

TEST(Rule, EachLetterIsOneStrategyAndAContractedOneGivesAPartial) {
  Rule rule;
  rule.in = {"mk", "kn"};
  rule.out = {"mn"};
  const std::vector<Strategy> all = strategies_of(rule, 2);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].in, (std::vector<Placement>{Replicate(), Replicate()}));
  EXPECT_EQ(all[0].out, std::vector<Placement>{Replicate()});
  EXPECT_EQ(all[1].letter, 'm');
  EXPECT_EQ(all[1].in, (std::vector<Placement>{Shard(0), Replicate()}));
  EXPECT_EQ(all[1].out, std::vector<Placement>{Shard(0)});
  EXPECT_EQ(all[2].in, (std::vector<Placement>{Shard(1), Shard(0)}));
  EXPECT_EQ(all[2].out, std::vector<Placement>{Partial()});
  EXPECT_EQ(all[3].out, std::vector<Placement>{Shard(1)});
}

TEST(Rule, DotsAndWholeLettersAreNeverCutAndEvenOnesWhereTheyDivide) {
  Rule rule;
  rule.in = {"a.bc"};
  rule.out = {"a.bc"};
  rule.whole = "b";
  rule.even = {{'c', 6}};
  EXPECT_EQ(strategies_of(rule, 2).size(), 3U);
  EXPECT_EQ(strategies_of(rule, 3).size(), 3U);
  EXPECT_EQ(strategies_of(rule, 4).size(), 2U);  // 4 parts do not divide 6
  Parts parts;
  parts['c'] = 3;
  EXPECT_EQ(strategies_of(rule, 2, parts).size(), 3U);
  EXPECT_EQ(strategies_of(rule, 3, parts).size(), 2U);  // 9 parts
}

TEST(Rule, EvenAllowsRunsWhoseChunksEndAlike) {
  EXPECT_TRUE((Rule::Even{'a', 6, 12}.allows(3, 1)));
  EXPECT_TRUE((Rule::Even{'a', 5, 10}.allows(3, 1)));   // chunks of 2 and of 4
  EXPECT_FALSE((Rule::Even{'a', 6, 4}.allows(4, 1)));   // 2 and 1
  EXPECT_FALSE((Rule::Even{'a', 5, 10}.allows(3, 2)));  // cut before
  EXPECT_FALSE((Rule::Even{'a', 5}.allows(3, 1)));
}

TEST(Rule, LettersOfAPartialStrategyAreItsPlacements) {
  const Strategy strategy = partial_strategy("PR", "P", Reduce::Max);
  EXPECT_EQ(strategy.in, (std::vector<Placement>{Partial(Reduce::Max), Replicate()}));
  EXPECT_EQ(strategy.out, std::vector<Placement>{Partial(Reduce::Max)});
  EXPECT_EQ(strategy.letter, 0);
}

}  // namespace
}  // namespace coshard
