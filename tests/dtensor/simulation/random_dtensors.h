#pragma once
// Random programs of DTensors in a simulation. Every rank draws the same steps from the same dice,
// one pair of dice per branch, and does each step twice: on DTensors, and on plain tensors of this
// rank alone, which say what it means.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/simulated.h"

namespace coshard::testing {

// What one rank does otherwise, at its step `at`.
enum class Differs {
  Throws,
  Leaves,  // ends its program
  NeverComes,
  SwapsBranches,
  GivesUp,  // an await, whose sibling throws
  Dies,     // after `at` collectives
};
inline constexpr int kWaysToDiffer = 6;
struct Difference {
  Differs how{};
  int rank = 0;
  int at = 0;
};

struct RankReport {
  std::vector<std::string> log;  // steps in the order in which the rank goes on with them
  std::string wrong;             // the first result that is not what it should be
  bool different = false;        // the difference took place
  int checked = 0;               // results
  testing::End end;
};
struct Report : Simulated {  // of the whole
  std::vector<RankReport> ranks;
};

// `spread`: over several processes, where the ranks can be, whose messages are late.
Report run_random_dtensors(std::uint64_t seed,
                           const std::optional<Difference>& difference = std::nullopt,
                           bool spread = false);

}  // namespace coshard::testing
