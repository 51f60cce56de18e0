#include <coshard/profiling/time_set.h>

#include <gtest/gtest.h>

#include <random>

namespace coshard {
namespace {

using Interval = TimeSet::Interval;
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

TEST(TimeSet, CommonIsWhatBothHaveAndWithinIsCommonWithOne) {
  const TimeSet set({{0, 10}, {20, 30}, {40, 50}});
  EXPECT_EQ(set.common(TimeSet({{5, 25}, {45, 46}})).intervals(),
            (Intervals{{5, 10}, {20, 25}, {45, 46}}));
  EXPECT_EQ(set.common(TimeSet({{10, 20}})).length(), 0);
  EXPECT_EQ(set.within({8, 41}).intervals(), (Intervals{{8, 10}, {20, 30}, {40, 41}}));
  EXPECT_EQ(set.within({10, 20}).length(), 0);
  EXPECT_EQ(set.within({25, 22}).length(), 0);
}

TEST(TimeSet, AddReturnsWhatIsNew) {
  TimeSet set({{0, 10}, {20, 30}});
  EXPECT_EQ(set.add({5, 25}), 10);
  EXPECT_EQ(set.add({5, 25}), 0);
  EXPECT_EQ(set.add({7, 7}), 0);
  EXPECT_EQ(set.add({30, 31}), 1);
  EXPECT_EQ(set.add({-5, -2}), 3);
  EXPECT_EQ(set.intervals(), (Intervals{{-5, -2}, {0, 31}}));
  EXPECT_EQ(set.add(TimeSet({{-3, 1}, {40, 42}})), 4);
  EXPECT_EQ(set.intervals(), (Intervals{{-5, 31}, {40, 42}}));
}

TEST(TimeSet, ForgetsWhatEndsBeforeATimeButKeepsTheLast64) {
  TimeSet set;
  int asked = 0;
  const auto fill = [&](std::int64_t from, std::int64_t to, std::int64_t earliest) {
    for (std::int64_t i = from; i < to; ++i) {
      set.add({10 * i, 10 * i + 5});
      set.forget([&] { return ++asked, earliest; });
    }
  };
  fill(0, 127, 0);
  EXPECT_EQ(asked, 0);
  fill(127, 128, 1000);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(set.intervals().front(), (Interval{640, 645})) << "64 of 128 are kept";
  fill(128, 192, 1500);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(set.intervals().size(), 64U);
  fill(192, 256, 1300);
  EXPECT_EQ(set.intervals().front(), (Interval{1300, 1305})) << "126 may still be asked for";
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
    const TimeSet difference = TimeSet(a).minus(TimeSet(b)), all = TimeSet(a).united(TimeSet(b));
    const TimeSet both = TimeSet(a).common(TimeSet(b));
    TimeSet added(a);
    EXPECT_EQ(added.add(TimeSet(b)), TimeSet(b).minus(TimeSet(a)).length());
    EXPECT_EQ(added.intervals(), all.intervals());
    for (std::int64_t at = 0; at < 80; ++at) {
      ASSERT_EQ(in(difference.intervals(), at), in(a, at) && !in(b, at)) << round << " at " << at;
      ASSERT_EQ(in(all.intervals(), at), in(a, at) || in(b, at)) << round << " at " << at;
      ASSERT_EQ(in(both.intervals(), at), in(a, at) && in(b, at)) << round << " at " << at;
    }
  }
}

}  // namespace
}  // namespace coshard
