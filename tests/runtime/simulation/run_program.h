#pragma once
// Runs a random program in a simulation, and keeps what each rank saw.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/runtime/simulation/random_program.h"
#include "tests/support/simulated.h"

namespace coshard::testing {

// What one rank does otherwise at one step.
enum class Differs {
  SwapsBranches,  // of an All
  Throws,
  Leaves,        // ends its program
  NeverComes,    // sleeps for ever
  WaitsForNone,  // for a message that nobody sends; there are no timeouts
  GivesUp,       // an Await, whose sibling throws
  Skips,         // an Issue
  OtherCount,    // of an all_reduce
  Dies,          // after so many issues as `number` says
};
struct Difference {
  Differs how{};
  int rank = 0;
  int number = 0;  // of the step
};

struct RankReport {
  std::vector<int> log;  // numbers of issues, resumptions and catches, in order
  std::string wrong;     // the first result that is not what it should be
  bool began = false;
  bool different = false;   // the difference took place
  std::int64_t end_ns = 0;  // virtual
  testing::End end;
};

struct Report : Simulated {  // of the whole
  std::vector<RankReport> ranks;
};

// `sim`: the processes and their network.
Report run_program(const RandomProgram& program, std::uint64_t seed,
                   const std::optional<Difference>& difference = std::nullopt,
                   std::vector<std::string>* events = nullptr, SimOptions sim = {});

}  // namespace coshard::testing
