// Which processes a run takes part in; several of them run in the tests of programs under mpirun.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/simulate.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/launch/roster.h"

namespace coshard {
namespace {

using Variables = std::map<std::string, std::string>;

TEST(ProcessRoster, WithoutALauncherAllRanksAreHere) {
  const auto roster = make_roster({.ranks = 3});
  EXPECT_EQ(roster->size(), 3);
  EXPECT_EQ(roster->here(), (std::vector{0, 1, 2}));
  ASSERT_NE(roster->thread_group(), nullptr);
  EXPECT_EQ(processes({}).all, 1);
}

const Variables kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}};
const Variables kStep{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}};

// In a process of its own, which has these variables and prints an error that it gets.
template <class Body>
[[noreturn]] void started_with(const Variables& variables, const Body& body) {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  try {
    body();
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(7);
  }
  std::_Exit(0);
}

class Started : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// A program of one MPI, started by the launcher of another: its processes would not know each
// other.
TEST_F(Started, ByALauncherWhoseJobIsLargerThanThatOfMpiIsToldBothSizes) {
  for (const Variables& variables : {kOpenMpi, kStep}) {
    EXPECT_EXIT(started_with(variables, [] { (void)make_roster({.ranks = 2}); }),
                ::testing::ExitedWithCode(7),
                ".*=2 and .*=0(, but MPI reports size 1 and rank 0: start the program with "
                "Open MPI's mpirun or srun --mpi=pmix|; build coshard with -Dmpi=enabled)");
  }
}

TEST_F(Started, WithANumberOfRanksThatIsNoMultipleOfTheProcessesIsToldBoth) {
  EXPECT_EXIT(started_with(kOpenMpi, [] { (void)make_roster({.ranks = 3}); }),
              ::testing::ExitedWithCode(7),
              "ranks 3 is not a multiple of the 2 processes: OMPI_COMM_WORLD_SIZE=2");
}

TEST_F(Started, ByTorchrunOnlyIsToldOfMpirun) {
  const Variables torchrun{{"RANK", "0"},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", "0"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", "29500"}};
  EXPECT_EXIT(
      started_with(torchrun, [] { run_ranks({}, [](World&) -> Task<void> { co_return; }); }),
      ::testing::ExitedWithCode(7), "start the program with mpirun -n 2");
}

// Nothing of it leaves the process, whatever has started that.
TEST_F(Started, ByALauncherASimulationIsWholeInEachProcess) {
  const auto body = [] {
    int ran = 0;
    simulate(
        {},
        [&](World& world) -> Task<void> {
          ran += world.size();
          co_return;
        },
        1);
    if (ran != 4) std::_Exit(8);
  };
  EXPECT_EXIT(started_with(kOpenMpi, body), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace coshard
