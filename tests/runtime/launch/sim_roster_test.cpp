// The ranks of a simulated process and those elsewhere.
#include "runtime/launch/sim_roster.h"

#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/simulate.h>
#include "runtime/launch/simulated_mpi.h"

namespace coshard {
namespace {

TEST(SimRoster, HasAsManyRanksHereInEachProcess) {
  SimulatedMpi network({.processes = 2, .seed = 1});
  bool gone = false;
  SimRoster::Hooks hooks;
  hooks.say = [](const Notice&) {};
  hooks.note_failed = [] { return true; };
  hooks.gone = [&gone] { gone = true; };
  {
    SimRoster roster({.ranks = 6}, 2, network.api(1), hooks);
    EXPECT_EQ(roster.size(), 6);
    EXPECT_EQ(roster.here(), (std::vector{3, 4, 5}));
    EXPECT_TRUE(roster.alive(0));
    roster.leave(4);
    EXPECT_FALSE(roster.alive(4));
    roster.fail("disk full");
    EXPECT_TRUE(roster.reports_failure());
  }
  EXPECT_TRUE(gone);
}

TEST(SimRoster, AFailureOfOneProcessEndsAllWithItsText) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SimOptions sim;
    sim.processes = 4;
    const Program program = [](World& world) -> Task<void> {
      Collective barrier;
      barrier.kind = CollectiveKind::Barrier;
      co_await world.communicator()->issue(barrier);
      if (world.rank() == 2) fail(ErrorKind::BadInput, "disk full");
      co_await world.communicator()->issue(barrier);
    };
    try {
      simulate({.ranks = 4}, program, seed, sim);
      ADD_FAILURE() << seed;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("disk full"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace coshard
