#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/launch/job.h"
#include "tests/support/errors.h"
#include "tests/support/fake_mpi.h"

namespace coshard::job_renewal {
namespace {

using namespace std::chrono_literals;
using testing::FakeMpi;

// Processes of a job, all of them in this one, after a run that failed.
struct Failed {
  explicit Failed(int processes) : mpi(processes, 5), all(static_cast<std::size_t>(processes)) {
    each([&](int p) {
      Launched launched{.launcher = "mpirun", .mpi = "openmpi"};
      launched.processes = processes;
      launched.process = p;
      job(p) = std::make_unique<Job>(mpi.api(p), launched, 20'000ms);
    });
    each([&](int p) {
      (void)job(p)->next_run();
      job(p)->engine()->halt();
    });
  }
  ~Failed() {
    each([&](int p) { job(p).reset(); });
  }
  std::unique_ptr<Job>& job(int process) { return all[static_cast<std::size_t>(process)]; }
  template <class F>
  void each(const F& f) {
    std::vector<std::thread> threads;
    for (std::size_t p = 0; p < all.size(); ++p)
      threads.emplace_back([&, p] { f(static_cast<int>(p)); });
    for (std::thread& thread : threads) thread.join();
  }
  std::string error_of(int process, std::chrono::milliseconds deadline) {
    return testing::error_text(ErrorKind::CommFailed, [&] { job(process)->begin_again(deadline); });
  }
  FakeMpi mpi;
  std::vector<std::unique_ptr<Job>> all;
};

void expect_in(const std::string& text, const std::string& all) {
  EXPECT_NE(all.find(text), std::string::npos) << all;
}

TEST(JobRenewal, AllProcessesBeginTheSameRun) {
  Failed jobs(3);
  for (int i = 0; i < 3; ++i) (void)jobs.job(1)->next_run();  // that it could not begin
  for (std::uint64_t run = 5; run < 8; ++run) {
    jobs.each([&](int p) {
      EXPECT_EQ(jobs.error_of(p, 20'000ms), "");
      EXPECT_FALSE(jobs.job(p)->engine()->halted());
      EXPECT_EQ(jobs.job(p)->next_run(), run);
      jobs.job(p)->engine()->halt();
    });
  }
}

TEST(JobRenewal, AProcessThatDoesNotComeIsNamedAtTheDeadlineAndToldLater) {
  Failed jobs(3);
  std::vector<std::string> errors(3);
  ::testing::internal::CaptureStderr();
  jobs.each([&](int p) {
    if (p != 1) errors[static_cast<std::size_t>(p)] = jobs.error_of(p, 1'000ms);
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "process 1 is not silent";
  for (const std::size_t p : {0, 2}) {
    expect_in("no run can follow the one that failed: process ", errors[p]);
    expect_in("process 1 (pid ", errors[p]);
    expect_in(") did not run ranks again within 1 s", errors[p]);
    expect_in(": restart all processes", errors[p]);
  }
  const std::string late = jobs.error_of(1, 20'000ms);
  expect_in("cannot run again: process 1 (pid ", late);
  expect_in("cannot run again: process 1 (pid ", jobs.error_of(0, 20'000ms));  // and stays so
}

TEST(JobRenewal, ARefusalIsToldOnceWithTheProcessThatRefusedFirst) {
  Failed jobs(5);
  expect_in("process 0 (pid ", jobs.error_of(4, 50ms));  // and 1, 2 and 3: they have not come
  for (const int p : {3, 2, 1, 0}) {
    const std::string error = jobs.error_of(p, 20'000ms);
    expect_in("no run can follow the one that failed: process 4 (pid ", error);
    const std::size_t refused = error.find("cannot run again: ");
    ASSERT_NE(refused, std::string::npos) << error;
    EXPECT_EQ(error.find("cannot run again: ", refused + 1), std::string::npos) << error;
    expect_in("process 3 (pid ", error.substr(refused));
  }
}

TEST(JobRenewal, AProcessThatEndsInsteadIsNamedAtOnce) {
  Failed jobs(2);
  jobs.job(1)->liveness().say("given up 3");
  const std::string error = jobs.error_of(0, 0ms);
  expect_in("no run can follow the one that failed: process 1 (pid ", error);
  expect_in(") has ended with exit code 3: restart all processes", error);
}

TEST(JobRenewal, ATransferThatCannotBeEndedIsNamedByAll) {
  Failed jobs(2);
  int value = 0;
  jobs.each([&](int p) { EXPECT_EQ(jobs.error_of(p, 20'000ms), ""); });
  jobs.job(1)->engine()->send(&value, sizeof value, 0, 7, [] {});
  jobs.each([&](int p) { jobs.job(p)->engine()->halt(); });
  jobs.each([&](int p) {
    expect_in("a send of 4 bytes to process 0 is in flight in memory of the program",
              jobs.error_of(p, 20'000ms));
  });
}

TEST(JobRenewal, KeepsWhatOthersSayToTheNextRun) {
  Failed jobs(2);
  const std::string said = "to the next run";
  jobs.each([&](int p) {
    if (p == 1) jobs.job(p)->liveness().say(said);
    EXPECT_EQ(jobs.error_of(p, 20'000ms), "");
  });
  const auto heard = jobs.job(0)->take_unheard();
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0], std::pair(1, said));
  jobs.each([&](int p) { jobs.job(p)->engine()->give_up(); });
}

}  // namespace
}  // namespace coshard::job_renewal
