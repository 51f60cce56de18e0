// Which processes a run takes part in; several of them run in the tests of programs under mpirun.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/simulate.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/device/make_device.h"
#include "runtime/launch/job.h"
#include "runtime/launch/rank_directory.h"
#include "tests/support/fake_mpi.h"

namespace coshard {
namespace {

using namespace std::chrono_literals;
using testing::FakeMpi;

// Processes of a job, all of them in this one.
struct Jobs {
  explicit Jobs(int processes) : mpi(processes, 5), all(static_cast<std::size_t>(processes)) {
    each([&](std::size_t p) {
      Launched launched{.launcher = "mpirun", .mpi = "openmpi"};
      launched.processes = processes;
      launched.process = static_cast<int>(p);
      all[p] = std::make_unique<Job>(mpi.api(launched.process), launched, 20'000ms);
    });
  }
  ~Jobs() {
    each([&](std::size_t p) { all[p].reset(); });  // each waits for the others
  }
  template <class F>
  void each(const F& f) const {
    std::vector<std::thread> threads;
    for (std::size_t p = 0; p < all.size(); ++p) threads.emplace_back([&, p] { f(p); });
    for (std::thread& thread : threads) thread.join();
  }
  FakeMpi mpi;
  std::vector<std::unique_ptr<Job>> all;
};

const WorldOptions kTwoRanks{.ranks = 2, .timeout = 20'000ms};
const std::vector kBoth{0, 1};

TEST(ProcessDirectory, ThatCannotBeMadeLeavesItsPlaceToTheNext) {
  const Jobs jobs(1);
  EXPECT_THROW((void)make_process_directory({.ranks = -1}, *jobs.all[0]), Error);
  const auto directory = make_process_directory({.ranks = 1}, *jobs.all[0]);
  EXPECT_THROW((void)make_process_directory({.ranks = 1}, *jobs.all[0]), Error) << "two at a time";
  directory->leave(0);
  EXPECT_TRUE(directory->over());
  EXPECT_NE(make_process_directory({.ranks = 1}, *jobs.all[0]), nullptr) << "as a handler does";
}

TEST(ProcessDirectory, IsOverWhenTheRanksElsewhereHaveLeftAsWell) {
  const Jobs jobs(2);
  const auto one = make_process_directory(kTwoRanks, *jobs.all[0]);
  const auto two = make_process_directory(kTwoRanks, *jobs.all[1]);
  one->leave(0);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(one->over());
  two->leave(1);
  while (!one->over() || !two->over()) std::this_thread::yield();
}

// Its peer has left already, and drives MPI only now and then.
TEST(ProcessDirectory, IsOverWhenItsNoticesHaveBeenSentAsWell) {
  const Jobs jobs(2);
  const auto one = make_process_directory(kTwoRanks, *jobs.all[0]);
  const auto two = make_process_directory(kTwoRanks, *jobs.all[1]);
  two->leave(1);
  while (one->alive(1)) (void)one->over();
  std::this_thread::sleep_for(50ms);  // the helper of `two` sleeps by then
  // The notice of this is longer than MPI sends at once.
  const auto data = make_device(DeviceKind::Cpu, {0, 1})->make_buffer(1100 * sizeof(float));
  Collective sum;
  sum.kind = CollectiveKind::AllReduce;
  sum.extent = 1100;
  sum.send = sum.recv = data->data();
  sum.keep_send = sum.keep_recv = data;
  const auto world = one->control(0);
  (void)world->issue(sum);
  one->leave(0);
  while (!one->over()) (void)two->over();
  EXPECT_FALSE(jobs.all[0]->engine()->sends_notices());
  while (!two->over()) std::this_thread::yield();
}

// What `job` has said so far: there is one order of all.
void until_heard(Job& job) {
  const std::vector<std::byte> left = to_bytes(LeftNotice{99, 0});
  const std::string later(reinterpret_cast<const char*>(left.data()), left.size());
  std::promise<void> said;
  job.liveness().listen({.said = [&](int, const std::string& text) {
    if (text == later) said.set_value();
  }});
  job.liveness().say(later);
  said.get_future().wait();
  job.liveness().listen({});
}

void expect_failure(Communicator& communicator, std::string_view named) {
  try {
    communicator.issue({}).wait();
    FAIL() << "met";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string_view(error.what()).find(named), std::string_view::npos) << error.what();
  }
}

TEST(ProcessDirectory, HearsOfAProcessThatEndedWhileAnEarlierRunListened) {
  const Jobs jobs(2);
  auto zero = make_process_directory(kTwoRanks, *jobs.all[0]);
  auto one = make_process_directory(kTwoRanks, *jobs.all[1]);
  zero->leave(0);
  one->leave(1);
  while (!one->over() || !zero->over()) std::this_thread::yield();
  one.reset();
  jobs.all[1]->liveness().say("ending 7 1");
  until_heard(*jobs.all[1]);
  zero.reset();
  zero = make_process_directory(kTwoRanks, *jobs.all[0]);
  const auto world = zero->control(0);
  world->set_timeout(10'000'000'000);
  expect_failure(*world, "has ended with exit code 7 after 1 run");
}

TEST(ProcessDirectory, HearsOfAGroupThatWasPoisonedBeforeItsRunBegan) {
  const Jobs jobs(2);
  const auto first = [&](std::size_t p) { return make_process_directory(kTwoRanks, *jobs.all[p]); };
  auto zero = first(0), one = first(1);
  zero->leave(0);
  one->leave(1);
  while (!one->over() || !zero->over()) std::this_thread::yield();
  one.reset();  // the first one of process 0 still listens
  one = make_process_directory(kTwoRanks, *jobs.all[1]);
  const auto world_of_one = one->control(1);
  world_of_one->subgroup(kBoth, "dp")->poison("disk full");
  until_heard(*jobs.all[1]);
  zero.reset();
  zero = make_process_directory(kTwoRanks, *jobs.all[0]);
  const auto world_of_zero = zero->control(0);
  world_of_zero->set_timeout(10'000'000'000);
  expect_failure(*world_of_zero->subgroup(kBoth, "dp"), "disk full");
}

// As a handler does, which runs before the first one is gone.
TEST(ProcessDirectory, FollowsOneThatFailedAndStillExists) {
  const Jobs jobs(2);
  std::vector<std::unique_ptr<RankDirectory>> failed(2), next(2);
  jobs.each([&](std::size_t p) { failed[p] = make_process_directory(kTwoRanks, *jobs.all[p]); });
  failed[0]->fail("disk full");
  jobs.each([&](std::size_t p) {
    failed[p]->leave(static_cast<int>(p));
    failed[p]->end();
    next[p] = make_process_directory(kTwoRanks, *jobs.all[p]);
  });
  failed.clear();
  jobs.each([&](std::size_t p) {
    const int rank = static_cast<int>(p);
    EXPECT_NO_THROW(next[p]->control(rank)->issue({}).wait());
    next[p]->leave(rank);
    next[p]->end();
  });
}

using Variables = std::map<std::string, std::string>;

TEST(ProcessDirectory, WithoutALauncherAllRanksAreHere) {
  const auto directory = make_directory({.ranks = 3});
  EXPECT_EQ(directory->size(), 3);
  EXPECT_EQ(directory->here(), (std::vector{0, 1, 2}));
  ASSERT_NE(directory->thread_group(), nullptr);
  EXPECT_EQ(processes({}).all, 1);
}

const Variables kTwoOfOpenMpi{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}};
const Variables kStepOfTwo{
    {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}, {"PMIX_RANK", "0"}};

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
  for (const Variables& variables : {kTwoOfOpenMpi, kStepOfTwo}) {
    EXPECT_EXIT(started_with(variables, [] { (void)make_directory({.ranks = 2}); }),
                ::testing::ExitedWithCode(7),
                ".*=2 and .*=0(, but MPI reports size 1 and rank 0: start the program with "
                "Open MPI's mpirun or srun --mpi=pmix|; build coshard with -Dmpi=enabled)");
  }
}

TEST_F(Started, WithANumberOfRanksThatIsNoMultipleOfTheProcessesIsToldBoth) {
  EXPECT_EXIT(started_with(kTwoOfOpenMpi, [] { (void)make_directory({.ranks = 3}); }),
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
  EXPECT_EXIT(started_with(kTwoOfOpenMpi, body), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace coshard
