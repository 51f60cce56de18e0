// run(): options, exit codes and one line for each error.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/command_line.h>
#include <coshard/runtime/sanitizers.h>
#include "tests/runtime/coro/allocations.h"
#include "tests/support/child.h"

namespace coshard::testing {
namespace {

struct Seen {
  int code = 0;
  WorldOptions options{.ranks = 0};
  std::string error;
};

Task<void> note_options(World& world, WorldOptions& options) {
  if (world.rank() == 0) options = world.options();
  co_return;
}

Seen run_with(std::vector<std::string> arguments) {
  Seen seen;
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStderr();
  seen.code = run(static_cast<int>(argv.size()), argv.data(),
                  [&](World& world) { return note_options(world, seen.options); });
  seen.error = ::testing::internal::GetCapturedStderr();
  return seen;
}

Task<void> fail_on_one(World& world) {
  if (world.rank() == 1) throw std::runtime_error("boom");
  co_return;
}

TEST(Run, ReadsItsOptionsInBothFormsUpToTwoDashes) {
  const Seen seen =
      run_with({"--ranks", "3", "--threads=2", "--timeout=1.5", "--", "--rank=x", "name"});
  EXPECT_EQ(seen.code, 0);
  EXPECT_EQ(seen.options.ranks, 3);
  EXPECT_EQ(seen.options.threads, 2);
  EXPECT_EQ(seen.options.timeout.count(), 1500);
  EXPECT_EQ(seen.error, "");
}

TEST(Run, TheLastOfTwoCounts) { EXPECT_EQ(run_with({"--ranks=3", "--ranks=4"}).options.ranks, 4); }

TEST(Run, RefusesWhatItDoesNotKnowAndSaysWhatWasMeant) {
  EXPECT_EQ(run_with({"--rank", "4"}).error,
            "error: unknown option --rank of program; did you mean --ranks?\n");
  EXPECT_EQ(run_with({"--thread=4"}).error,
            "error: unknown option --thread of program; did you mean --threads?\n");
  EXPECT_EQ(run_with({"--steps", "7"}).error,
            "error: unknown option --steps of program; --help lists its options\n");
  EXPECT_EQ(run_with({"4"}).error, "error: program takes no argument '4'\n");
  for (const char* bad : {"--rank", "--steps=7", "4", "-r"}) {
    const Seen seen = run_with({bad});
    EXPECT_EQ(seen.code, 2) << bad;
    EXPECT_EQ(seen.options.ranks, 0) << bad << " ran the program";
  }
}

TEST(Run, HelpAndVersionAreAnsweredAndRunNothing) {
  for (const char* flag : {"--help", "-h", "--version"}) {
    ::testing::internal::CaptureStdout();
    const Seen seen = run_with({flag});
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_EQ(seen.code, 0) << flag;
    EXPECT_EQ(seen.error, "") << flag;
    EXPECT_EQ(seen.options.ranks, 0) << flag << " ran the program";
    const bool version = std::string_view(flag) == "--version";
    EXPECT_EQ(out.rfind(version ? "coshard " : "Usage: program [OPTIONS]", 0), 0U) << out;
    for (const char* name : {"--ranks", "--threads", "--rank-threads", "--timeout", "--grace",
                             "--device", "--communicator", "--link", "--progress-threads"})
      EXPECT_EQ(out.find(name) != std::string::npos, !version) << name;
  }
}

TEST(Run, HasTwoRanksAndAMinuteByDefault) {
  const Seen seen = run_with({});
  EXPECT_EQ(seen.options.ranks, 2);
  EXPECT_EQ(seen.options.timeout.count(), 60'000);
}

TEST(Run, BadInputIsOneLineAndExitCodeTwo) {
  EXPECT_EQ(run_with({"--ranks", "-1"}).error,
            "error: --ranks -1: must be a number from 1 to 1024\n");
  EXPECT_EQ(run_with({"--ranks=two"}).error,
            "error: --ranks two: must be a number from 1 to 1024\n");
  EXPECT_EQ(run_with({"--ranks", ""}).error,
            "error: --ranks '': must be a number from 1 to 1024\n");
  EXPECT_EQ(run_with({"--ranks=", "4"}).error, "error: --ranks needs a value\n");
  EXPECT_EQ(run_with({"--timeout"}).error, "error: --timeout needs a value\n");
  for (const char* bad :
       {"--ranks=0", "--ranks=2x", "--ranks=100000", "--ranks=99999999999", "--threads=-1",
        "--threads=100000000", "--rank-threads=0", "--progress-threads=65", "--timeout=-3",
        "--timeout=inf", "--timeout=nan", "--grace=-1", "--device=gpu", "--device=sim",
        "--communicator=foo", "--communicator="}) {
    const Seen seen = run_with({bad});
    EXPECT_EQ(seen.code, 2) << bad;
    EXPECT_EQ(seen.options.ranks, 0) << bad << " ran the program";
  }
}

TEST(Run, ReadsTheLinkThatItEmulates) {
  const Seen seen = run_with({"--link", "20us,1GB/s", "--ranks=2"});
  EXPECT_EQ(seen.error, "");
  ASSERT_TRUE(seen.options.link);
  EXPECT_EQ(to_string(*seen.options.link), "20us,1GB/s");
  EXPECT_FALSE(run_with({}).options.link);
}

TEST(Run, ALinkThatCannotBeIsOneLineThatNamesIt) {
  EXPECT_EQ(run_with({"--link", "0GB/s"}).error,
            "error: link 0GB/s: the rate must be from 0.001 to 1e21 B/s, got 0 bytes per us\n");
  for (const char* bad : {"-1us,1GB/s", "1us,-1GB/s", "fast", "", "1GB/s,20us", "20us",
                          "1us,nanB/s", "1us,2us,1GB/s", "20,1GB/s", "1us,1GB", "1us,"}) {
    const Seen seen = run_with({"--link", bad});
    EXPECT_EQ(seen.code, 2) << bad;
    EXPECT_NE(seen.error.find(bad), std::string::npos) << seen.error;
    EXPECT_EQ(seen.options.ranks, 0) << bad << " ran the program";
  }
}

TEST(Run, ReadsHowManyProgressThreadsThereAre) {
  EXPECT_EQ(run_with({"--progress-threads=2"}).options.progress_threads, 2);
  EXPECT_EQ(run_with({}).options.progress_threads, 0);
  EXPECT_EQ(run_with({"--progress-threads", "-1"}).error,
            "error: --progress-threads -1: must be a number from 0 to 64\n");
  EXPECT_EQ(run_with({"--progress-threads=1", "--communicator=nccl"}).error,
            "error: progress_threads 1 needs communicator local, got nccl\n");
}

TEST(Run, ALinkNeedsTheCommunicatorThatEmulatesIt) {
  const Seen seen = run_with({"--link=1GB/s", "--communicator=nccl"});
  EXPECT_EQ(seen.error, "error: link 0ns,1GB/s needs communicator local, got nccl\n");
}

TEST(Run, WhatThisBuildLacksIsOneLineThatNamesIt) {
  const Seen seen = run_with({"--communicator", "foo"});
  EXPECT_EQ(seen.code, 2);
  EXPECT_NE(seen.error.find("error: unknown communicator 'foo'; this build has local"),
            std::string::npos)
      << seen.error;
}

TEST(Run, AnyOtherErrorIsOneLineAndExitCodeOne) {
  std::string name = "program";
  std::vector<char*> argv{name.data()};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(1, argv.data(), fail_on_one), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "error: rank 1: boom\n");
}

Task<void> throw_what_a_terminal_obeys(World&) {
  throw std::runtime_error("50 %\r\x1b[2Kgone\nmore");
  co_return;
}
TEST(Run, WhatATerminalWouldObeyIsShown) {
  std::string name = "program";
  std::vector<char*> argv{name.data()};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(1, argv.data(), throw_what_a_terminal_obeys), 1);
  const std::string error = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(error.find("50 %\\x0d\\x1b[2Kgone more\n"), std::string::npos) << error;
  EXPECT_EQ(std::count_if(error.begin(), error.end(), [](char c) { return c < ' '; }), 1) << error;
}

const volatile void* volatile kept_from_the_optimizer = nullptr;
void runs_out_of_memory() { throw std::bad_alloc(); }
void must_not_throw() noexcept { runs_out_of_memory(); }
Task<void> run_out_where_nothing_may_be_thrown(World&) {
  must_not_throw();
  co_return;
}
void exhaust_memory() { kept_from_the_optimizer = ::operator new(SIZE_MAX / 4); }
// As g++ ends some noexcept functions with clean-ups: nothing has caught the error yet.
struct EndsInUnwinding {
  ~EndsInUnwinding() { std::terminate(); }
};
void unwinds_where_nothing_may_be_thrown() {
  const EndsInUnwinding here;
  exhaust_memory();
}
Task<void> run_out_in_clean_ups(World&) {
  unwinds_where_nothing_may_be_thrown();
  co_return;
}
void expect_one_error(const testing::Child& child) {
  EXPECT_EQ(child.code, 1) << child;
  const std::string text = child.text();
  EXPECT_EQ(text.find("error: "), 0U) << child;
  EXPECT_EQ(text.find("error: "), text.rfind("error: ")) << child;
}
template <Task<void> (*program)(World&)>
int run_on_two_ranks() {
  WorldOptions options;
  options.ranks = 2;
  return run(options, program);
}
TEST(Run, MemoryThatRunsOutWhereNothingMayBeThrownIsOneLineAndExitCodeOne) {
  expect_one_error(testing::in_child(run_on_two_ranks<run_out_where_nothing_may_be_thrown>, 20));
  if (!kCountsAllocations) GTEST_SKIP() << "no allocation fails under a sanitizer";
  expect_one_error(testing::in_child(run_on_two_ranks<run_out_in_clean_ups>, 20));
}

// Branches that allocate, and barriers.
Task<void> fill_memory(std::size_t bytes) {
  std::vector<std::string> held;
  for (int i = 0; i < 16; ++i) {
    held.emplace_back(bytes, 'x');
    co_await yield();
  }
}
Task<void> fill_memory_in_branches(World& world) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Task<void>> tasks;
    for (std::size_t i = 1; i <= 4; ++i) tasks.push_back(fill_memory(i * 20'000));
    Task<void> all = when_all(std::move(tasks));
    co_await std::move(all);
    const Work work = world.communicator()->issue(Collective());
    co_await work;
  }
}
// With this much address space besides what the program has.
std::size_t more_bytes = 0;
int run_64_ranks_with_more_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t most = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + more_bytes;
  const rlimit limit{most, most};
  ::setrlimit(RLIMIT_AS, &limit);
  WorldOptions options;
  options.ranks = 64;
  return run(options, fill_memory_in_branches);
}
TEST(Run, MemoryOrThreadsThatRunOutEndManyRanksWithOneErrorAtAnyLimit) {
  if (COSHARD_ASAN || COSHARD_TSAN) GTEST_SKIP() << "a sanitizer needs all addresses";
  for (more_bytes = std::size_t{100} << 20; more_bytes < std::size_t{900} << 20;
       more_bytes += std::size_t{25} << 20) {
    const testing::Child child = testing::in_child(run_64_ranks_with_more_bytes, 60);
    if (child.code != 0) {
      expect_one_error(child);
    }
  }
}

}  // namespace
}  // namespace coshard::testing
