// What one search says of many targets, against a plan for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "dtensor/redistribute/planner.h"
#include "tests/dtensor/redistribute/layouts.h"

namespace coshard::testing {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Setting {
  std::vector<int> mesh;
  Shape shape;
  std::vector<Link> links;
};

std::vector<Setting> settings() {
  const Link fast{2, 100'000}, slow{50, 1'000};
  return {{{4}, {64, 48}, {}},
          {{3}, {7, 5}, {}},
          {{2, 4}, {64, 96}, {slow, fast}},
          {{4, 2}, {9, 10}, {fast, slow}},
          {{1, 4}, {8, 8}, {}},
          {{2, 2, 2}, {16, 8}, {slow, fast, fast}}};
}

PlanCost cost_of_plan(const Setting& s, const Layout& from, const Layout& to) {
  PlanCost sum;
  for (const PlanStep& step : plan_steps(s.mesh, s.shape, 4, from, to, s.links)) {
    sum.communicates = sum.communicates || communicates(step.kind);
    sum.time += step.time;
  }
  if (sum.time == 0 && !(from == to)) sum.time = time_of(false, 0, 0);
  return sum;
}

TEST(PlanCosts, AreThoseOfThePlansInWhateverOrderTheyAreAsked) {
  std::mt19937 random(3);
  for (const Setting& s : settings()) {
    std::vector<Layout> all = layouts_of(
        static_cast<int>(s.mesh.size()),
        {Replicate(), Shard(0), Shard(1), StridedShard(0, 2), Partial(), Partial(Reduce::Max)});
    for (int drawn = 0; drawn < 12; ++drawn) {
      const Layout from = all[random() % all.size()];
      PlanCosts costs(s.mesh, s.shape, 4, from, s.links);
      std::ranges::shuffle(all, random);
      for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 40); ++i) {
        const Layout& to = all[i];
        if (!allowed(from, to)) continue;
        const PlanCost right = cost_of_plan(s, from, to);
        if (right.communicates) {  // a search that stops early goes on later
          EXPECT_GE(costs.to(to, 0.9 * right.time).time, right.time - 1e-4) << from << to;
        }
        const PlanCost told = costs.to(to, i % 2 ? kNever : right.time + 0.001);
        EXPECT_EQ(told.communicates, right.communicates) << from << to << s.shape;
        EXPECT_NEAR(told.time, right.time, 1e-4) << from << to << s.shape;
      }
    }
  }
}

TEST(PlanCosts, OfATargetThatIsRefusedNeverEnd) {
  PlanCosts costs(std::vector<int>{4}, Shape{8}, 4, Layout(Partial()), {});
  EXPECT_EQ(costs.to(Layout(Partial(Reduce::Max)), kNever).time, kNever);
  EXPECT_EQ(PlanCosts(std::vector<int>{4}, Shape{8}, 4, Layout(Replicate()), {})
                .to(Layout(Partial(Reduce::Product)), kNever)
                .time,
            kNever);
}

TEST(PlanCosts, OfNothingAreNothing) {
  PlanCosts costs(std::vector<int>{4}, Shape{0, 8}, 4, Layout(Partial()), {});
  EXPECT_FALSE(costs.to(Layout(Replicate()), kNever).communicates);
  EXPECT_EQ(costs.reduced().time, 0);
}

TEST(PlanCosts, ToReduceAreThoseOfTheNearestLayoutWithoutPartials) {
  for (const Setting& s : settings()) {
    const Layout from = Layout::filled(static_cast<int>(s.mesh.size()), Partial());
    double best = kNever;
    for (const Layout& to :
         layouts_of(from.ndim(), {Replicate(), Shard(0), Shard(1), StridedShard(0, 2),
                                  StridedShard(1, 2), StridedShard(0, 4), StridedShard(1, 4)}))
      best = std::min(best, cost_of_plan(s, from, to).time);
    PlanCosts costs(s.mesh, s.shape, 4, from, s.links);
    EXPECT_NEAR(costs.reduced().time, best, 1e-4) << s.shape;
    EXPECT_TRUE(costs.reduced().communicates);
  }
}

}  // namespace
}  // namespace coshard::testing
