#include "runtime/launch/job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include <coshard/runtime/error.h>
#include "tests/support/fake_mpi.h"
#include "tests/support/virtual_ranks.h"

namespace coshard {
namespace {

using namespace std::chrono_literals;
using testing::FakeMpi;

Launched launched_as(int process, int processes) {
  Launched launched{.launcher = "mpirun", .mpi = "openmpi"};
  launched.said = str_cat("OMPI_COMM_WORLD_SIZE=", processes);
  launched.processes = processes;
  launched.process = process;
  return launched;
}

TEST(Job, ItsProcessesKnowEachOtherOnceItIsMade) {
  FakeMpi mpi(3, 5);
  std::vector<std::unique_ptr<Job>> jobs(3);
  std::vector<std::thread> threads;
  for (int p = 0; p < 3; ++p)
    threads.emplace_back([&, p] {
      jobs[static_cast<std::size_t>(p)] =
          std::make_unique<Job>(mpi.api(p), launched_as(p, 3), 20'000ms);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& job : jobs) {
    ASSERT_NE(job, nullptr);
    EXPECT_TRUE(job->on_one_host());
    EXPECT_EQ(job->processes(), 3);
    EXPECT_EQ(job->text(2).find(str_cat("process 2 (pid ", ::getpid(), " on ")), 0U);
  }
  std::promise<std::string> heard;
  jobs[2]->liveness().listen(
      {nullptr, nullptr, [&](int, const std::string& text) { heard.set_value(text); }});
  jobs[1]->liveness().say("hello");
  EXPECT_EQ(heard.get_future().get(), "hello");
  jobs[2]->liveness().listen({});
  threads.clear();
  for (auto& job : jobs)
    threads.emplace_back([&job] { job.reset(); });  // each waits for the others
  for (std::thread& thread : threads) thread.join();
}

std::atomic<int> stopped{0}, left{0};

// MPI would wait for those that never come, and write memory that is gone.
TEST(Job, ThatHasFailedOnlyTellsTheLauncherThatItEnds) {
  for (const bool fails : {false, true}) {
    stopped = left = 0;
    FakeMpi mpi(2, 5);
    std::latch made(2);
    const auto end_of = [&](int process) {
      MpiApi api = mpi.api(process);
      api.stop = []() -> const char* { return ++stopped, nullptr; };
      api.leave = [] { ++left; };
      const Job job(api, launched_as(process, 2), 20'000ms);
      made.arrive_and_wait();
      if (fails) job.engine()->halt();
    };
    std::thread one([&] { end_of(1); });
    end_of(0);
    one.join();
    EXPECT_EQ(stopped, fails ? 0 : 2);
    EXPECT_EQ(left, fails ? 2 : 0);
  }
}

TEST(Job, ProcessesThatDoNotComeAreNamedAtTheDeadline) {
  FakeMpi mpi(4, 5);
  const auto error_of = [&](int process) -> std::string {
    try {
      const Job job(mpi.api(process), launched_as(process, 4), 2300ms);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  std::string first, second;
  testing::on_virtual_fibers(2, [&](int fiber) {
    if (fiber == 0)
      first = error_of(0);
    else
      second = error_of(2);
  });
  EXPECT_EQ(first, "2 of 4 processes did not join the job within 2.3 s: 1, 3");
  EXPECT_EQ(
      second,
      "process 2: process 0 did not answer within 2.3 s: it is waiting for other processes, or "
      "has not called run()");
}

// Of the first ones, MPI keeps the receives.
TEST(Job, ThatCouldNotBeMadeIsMadeOnceTheOthersCome) {
  FakeMpi mpi(3, 5);
  std::latch failed(3);
  const auto run = [&](int process) {
    const auto engine = std::make_shared<MpiEngine>(mpi.api(process));
    if (process < 2) {
      EXPECT_THROW(Job(engine, launched_as(process, 3), 100ms), Error);
    }
    failed.arrive_and_wait();
    const Job job(engine, launched_as(process, 3), 20'000ms);
    for (int other = 0; other < 3; ++other)
      EXPECT_EQ(job.text(other).find(str_cat("process ", other, " (pid ", ::getpid(), " on ")), 0U);
  };
  std::thread one([&] { run(1); }), two([&] { run(2); });
  run(0);
  one.join();
  two.join();
}

TEST(Job, AnotherNumberOfProcessesThanTheLauncherSaysIsAnError) {
  FakeMpi mpi(2, 5);
  try {
    const Job job(mpi.api(0), launched_as(0, 4), 300ms);
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "OMPI_COMM_WORLD_SIZE=4, but MPI reports size 2 and rank 0: start the program with " +
                  launchers_of("openmpi"));
  }
}

TEST(Job, AFailureOfARunThatIsAheadIsKept) {
  FakeMpi mpi(1, 5);
  Job job(mpi.api(0), launched_as(0, 1), 1000ms);
  EXPECT_EQ(job.next_run(), 1U);
  job.keep({2, 7, "of a group"});
  job.keep({2, 0, "disk full"});
  EXPECT_TRUE(job.kept_poisons(1).empty());
  const std::vector<PoisonNotice> kept = job.kept_poisons(2);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].group, 7U);
  EXPECT_EQ(kept[1].cause, "disk full");
}

}  // namespace
}  // namespace coshard
