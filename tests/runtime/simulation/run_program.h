#pragma once
// Runs a random program in a simulation, and keeps what each rank saw.
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/launch/simulate.h"
#include "tests/runtime/simulation/random_program.h"
#include "tests/support/ends.h"

namespace coshard::test {

// What Step::Throw throws, and Step::TryAll catches.
struct PlannedError : std::runtime_error {
  PlannedError() : std::runtime_error("planned") {}
};
// What a rank throws that differs.
struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

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

struct Report {
  std::vector<RankReport> ranks;
  testing::End end;  // of the whole
  bool boom = false;
};

Report run_program(const RandomProgram& program, std::uint64_t seed,
                   const std::optional<Difference>& difference = std::nullopt,
                   std::vector<std::string>* events = nullptr);

}  // namespace coshard::test
