#include "profiling/overlap/time_set.h"

#include <gtest/gtest.h>

#include <random>

namespace coshard::overlap {
namespace {

using Intervals = std::vector<Interval>;

TEST(TimeSet, IsTheUnionOfWhatOverlapsNestsAndTouches) {
  const TimeSet set({{30, 40}, {0, 10}, {2, 5}, {8, 12}, {12, 13}, {50, 50}, {35, 36}});
  EXPECT_EQ(set.intervals(), (Intervals{{0, 13}, {30, 40}}));
  EXPECT_EQ(set.length(), 23);
  EXPECT_EQ(TimeSet().length(), 0);
}

TEST(TimeSet, MinusCutsOutAndKeepsWhatOnlyTouches) {
  const TimeSet set({{0, 10}, {20, 30}});
  EXPECT_EQ(set.minus(TimeSet({{2, 4}, {6, 7}})).intervals(),
            (Intervals{{0, 2}, {4, 6}, {7, 10}, {20, 30}}));
  EXPECT_EQ(set.minus(TimeSet({{10, 20}})).intervals(), set.intervals());
  EXPECT_EQ(set.minus(TimeSet({{5, 25}})).intervals(), (Intervals{{0, 5}, {25, 30}}));
  EXPECT_EQ(set.minus(TimeSet({{-1, 31}})).length(), 0);
  EXPECT_EQ(set.minus(set).length(), 0);
  EXPECT_EQ(set.minus(TimeSet()).intervals(), set.intervals());
}

TEST(TimeSet, AgreesWithCountingEveryNanosecond) {
  std::mt19937 generator(1);
  const auto drawn = [&generator] {
    Intervals some;
    for (std::uint32_t i = generator() % 8; i > 0; --i) {
      const auto begin = static_cast<std::int64_t>(generator() % 60);
      some.push_back({begin, begin + static_cast<std::int64_t>(generator() % 12)});
    }
    return some;
  };
  const auto in = [](const Intervals& set, std::int64_t at) {
    for (const Interval& one : set)
      if (one.begin <= at && at < one.end) return true;
    return false;
  };
  for (int round = 0; round < 500; ++round) {
    const Intervals a = drawn(), b = drawn();
    const TimeSet difference = TimeSet(a).minus(TimeSet(b)), both = TimeSet(a).united(TimeSet(b));
    for (std::int64_t at = 0; at < 80; ++at) {
      ASSERT_EQ(in(difference.intervals(), at), in(a, at) && !in(b, at)) << round << " at " << at;
      ASSERT_EQ(in(both.intervals(), at), in(a, at) || in(b, at)) << round << " at " << at;
    }
  }
}

}  // namespace
}  // namespace coshard::overlap
