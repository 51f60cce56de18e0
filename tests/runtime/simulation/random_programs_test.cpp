// Random programs, as many as COSHARD_SEEDS or --seeds says: of one structure they do what they
// mean one after the other; where one rank differs they end in a typed error on all.
#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>
#include "tests/runtime/simulation/run_program.h"
#include "tests/runtime/simulation/verdict.h"
#include "tests/support/seeds.h"

namespace coshard::testing {
namespace {

std::string replay_line(std::uint64_t seed) {
  return how_to_replay(seed) + "\n" + to_text(random_program(seed));
}

TEST(RandomPrograms, OfOneStructureDoWhatTheyMean) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const std::string verdict = judge_one_structure(seed);
    ASSERT_EQ(verdict, "") << replay_line(seed);
  }
}

TEST(RandomPrograms, WhereOneRankDiffersEndInATypedErrorOnAll) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    const std::string verdict = judge_difference(seed);
    ASSERT_EQ(verdict, "") << replay_line(seed);
  }
}

}  // namespace
}  // namespace coshard::testing
