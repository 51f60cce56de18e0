// The ranks of a simulated process and those elsewhere.
#include "runtime/launch/sim_directory.h"

#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/simulate.h>
#include "runtime/launch/simulated_mpi.h"

namespace coshard {
namespace {

TEST(SimDirectory, HasAsManyRanksHereInEachProcess) {
  SimulatedMpi network({.processes = 2, .seed = 1});
  bool gone = false;
  SimDirectory::Hooks hooks;
  hooks.say = [](const Notice&) {};
  hooks.note_failed = [] { return true; };
  hooks.gone = [&gone] { gone = true; };
  {
    SimDirectory directory({.ranks = 6}, 2, network.api(1), hooks);
    EXPECT_EQ(directory.size(), 6);
    EXPECT_EQ(directory.here(), (std::vector{3, 4, 5}));
    EXPECT_TRUE(directory.alive(0));
    directory.leave(4);
    EXPECT_FALSE(directory.alive(4));
    directory.fail("disk full");
    EXPECT_TRUE(directory.reports_failure());
  }
  EXPECT_TRUE(gone);
}

TEST(SimDirectory, AFailureOfOneProcessEndsAllWithItsText) {
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
