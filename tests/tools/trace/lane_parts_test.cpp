#include "tools/trace/lane_parts.h"

#include <gtest/gtest.h>

#include <random>

namespace coshard::tools {
namespace {

using Parts = std::vector<LanePart>;

TEST(LaneParts, AreCutWhereModulesChangeAndWhereTheRankStoodStill) {
  const std::vector<LaneEvent> events = {
      {{0, 10}, "a"}, {{4, 6}, "b"}, {{10, 12}, "a"}, {{20, 20}, "c"}, {{30, 40}, ""}};
  EXPECT_EQ(parts_of(events, TimeSet({{5, 11}, {35, 90}})), (Parts{{{0, 4}, {"a"}, false},
                                                                   {{4, 5}, {"a", "b"}, false},
                                                                   {{5, 6}, {"a", "b"}, true},
                                                                   {{6, 11}, {"a"}, true},
                                                                   {{11, 12}, {"a"}, false},
                                                                   {{30, 35}, {""}, false},
                                                                   {{35, 40}, {""}, true}}));
  EXPECT_EQ(parts_of({}, TimeSet({{0, 1}})), Parts());
}

TEST(LaneParts, AgreeWithLookingAtEveryNanosecond) {
  std::mt19937 generator(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<LaneEvent> events;
    std::int64_t begin = 0;
    for (int i = 0; i < 8; ++i) {
      begin += static_cast<std::int64_t>(generator() % 6);
      const std::int64_t end = begin + static_cast<std::int64_t>(generator() % 12);
      events.push_back({{begin, end}, std::string(1, static_cast<char>('a' + generator() % 3))});
    }
    const auto still = static_cast<std::int64_t>(generator() % 40);
    const TimeSet stood_still({{still, still + 9}});
    const Parts parts = parts_of(events, stood_still);
    for (std::int64_t at = 0; at < 60; ++at) {
      const overlap::Interval now{at, at + 1};
      std::set<std::string> modules, found;
      for (const LaneEvent& event : events)
        if (TimeSet({event.time}).within(now).length() > 0) modules.insert(event.module);
      for (const LanePart& part : parts) {
        if (TimeSet({part.time}).within(now).length() == 0) continue;
        ASSERT_TRUE(found.empty()) << "disjoint";
        found = part.modules;
        ASSERT_EQ(part.stood_still, stood_still.within(now).length() > 0) << round << " at " << at;
      }
      ASSERT_EQ(found, modules) << round << " at " << at;
    }
  }
}

}  // namespace
}  // namespace coshard::tools
