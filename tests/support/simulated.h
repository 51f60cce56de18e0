#pragma once
// How the run of a random program in a simulation ended.
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>

#include <coshard/runtime/launch/simulate.h>
#include "tests/support/ends.h"

namespace coshard::test {

// What siblings throw, and catch, by plan.
struct PlannedError : std::runtime_error {
  PlannedError() : std::runtime_error("planned") {}
};
// What a rank throws that differs.
struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

struct Simulated {
  testing::End end;
  bool boom = false;  // that is what it threw
};
// `end_of_rank` gives the place for a rank's own end.
inline Simulated simulate_to_the_end(const WorldOptions& options, const Program& program,
                                     const std::function<testing::End&(int rank)>& end_of_rank,
                                     std::uint64_t seed, const SimOptions& sim) {
  const auto noted = [&](World& world) {
    return testing::note_end(program(world), end_of_rank(world.rank()));
  };
  try {
    simulate(options, noted, seed, sim);
    return {};
  } catch (const Boom&) {
    return {testing::end_of(std::current_exception()), true};
  } catch (...) {
    return {testing::end_of(std::current_exception()), false};
  }
}

}  // namespace coshard::test
