// Random programs over several processes, whose network delays, loses messages or is cut off.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <coshard/runtime/error.h>
#include "tests/runtime/simulation/run_program.h"
#include "tests/runtime/simulation/verdict.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

std::string replay(std::uint64_t seed) {
  return how_to_replay(seed) + "\n" + to_text(random_program(seed, 4));
}

TEST(SimulatedProcesses, DoWhatOneProcessDoes) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed)
    ASSERT_EQ(judge_spread(seed), "") << replay(seed);
}

TEST(SimulatedProcesses, WhereOneRankDiffersEndInATypedErrorOnAll) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed)
    ASSERT_EQ(judge_difference(seed, seed % 2 == 0 ? 2 : 4), "") << replay(seed);
}

TEST(SimulatedProcesses, ThatLoseMessagesAreRightOrSayWhatIsMissing) {
  Tally tally;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed)
    ASSERT_EQ(judge_lossy(seed, tally), "") << replay(seed);
  std::printf("%d right, %d failed\n", tally.right, tally.failed);
  if (seeds() < 100) return;
  EXPECT_GT(tally.right, 0);
  EXPECT_GT(tally.failed, 0);
}

TEST(SimulatedProcesses, OneThatIsKilledIsNamedByAll) {
  Tally tally;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed)
    ASSERT_EQ(judge_killed(seed, tally), "") << replay(seed);
  std::printf("%d right, %d failed\n", tally.right, tally.failed);
  if (seeds() < 100) return;
  EXPECT_GT(tally.right, 0);
  EXPECT_GT(tally.failed, 0);
}

TEST(SimulatedProcesses, OfTheSameSeedDoTheSame) {
  bool differ = false, loses = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomProgram program = random_program(seed, 4);
    SimOptions sim{.processes = seed % 2 == 0 ? 2 : 4, .network = {.lost = 0.01}};
    if (seed % 3 == 0) sim.network.deaths.push_back({1, 30});
    const auto events = [&](std::uint64_t drawn) {
      std::vector<std::string> told;
      const Report report = run_program(program, drawn, std::nullopt, &told, sim);
      told.push_back(str_cat(report.end));
      return told;
    };
    const std::vector<std::string> one = events(seed);
    EXPECT_EQ(one, events(seed)) << "seed " << seed;
    differ |= one != events(seed + 1000);
    loses |= std::ranges::any_of(
        one, [](const std::string& event) { return event.find(" loses ") != std::string::npos; });
  }
  EXPECT_TRUE(differ);
  EXPECT_TRUE(loses);
}

}  // namespace
}  // namespace coshard::testing
