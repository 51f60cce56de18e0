#pragma once
// How the simulation of a random program ended.
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>

#include <coshard/runtime/launch/simulate.h>
#include "tests/support/ends.h"

namespace coshard::testing {

// Thrown and caught by siblings, as planned.
struct PlannedError : std::runtime_error {
  PlannedError() : std::runtime_error("planned") {}
};
// Thrown by a rank that differs.
struct Boom : std::runtime_error {
  Boom() : std::runtime_error("boom") {}
};

struct Simulated {
  testing::End end;
  bool boom = false;  // it threw a Boom
};
// `end_of_rank` returns where to store a rank's own end.
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

}  // namespace coshard::testing
