#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "runtime/launch/world.h"

namespace coshard::test {
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
  testing::internal::CaptureStderr();
  seen.code = run(static_cast<int>(argv.size()), argv.data(),
                  [&](World& world) { return note_options(world, seen.options); });
  seen.error = testing::internal::GetCapturedStderr();
  return seen;
}

TEST(Run, ReadsItsOptionsInBothFormsAndLeavesTheOthersAlone) {
  const Seen seen =
      run_with({"--steps", "7", "--ranks", "3", "--threads=2", "--timeout=1.5", "--rank=x"});
  EXPECT_EQ(seen.code, 0);
  EXPECT_EQ(seen.options.ranks, 3);
  EXPECT_EQ(seen.options.threads, 2);
  EXPECT_EQ(seen.options.timeout.count(), 1500);
  EXPECT_EQ(seen.error, "");
}

TEST(Run, HasTwoRanksAndAMinuteByDefault) {
  const Seen seen = run_with({});
  EXPECT_EQ(seen.options.ranks, 2);
  EXPECT_EQ(seen.options.timeout.count(), 60'000);
}

TEST(Run, BadInputIsOneLineAndExitCodeTwo) {
  EXPECT_EQ(run_with({"--ranks", "-1"}).error, "error: ranks must be at least 1, got -1\n");
  EXPECT_EQ(run_with({"--ranks=two"}).error, "error: --ranks needs a number, got 'two'\n");
  EXPECT_EQ(run_with({"--timeout"}).error, "error: --timeout needs a value\n");
  for (const char* bad :
       {"--ranks=0", "--ranks=2x", "--threads=-1", "--timeout=-3", "--timeout=inf"}) {
    const Seen seen = run_with({bad});
    EXPECT_EQ(seen.code, 2) << bad;
    EXPECT_EQ(seen.options.ranks, 0) << bad << " ran the program";
  }
}

Task<void> fail_on_one(World& world) {
  if (world.rank() == 1) throw std::runtime_error("boom");
  co_return;
}

TEST(Run, AnyOtherErrorIsOneLineAndExitCodeOne) {
  std::string name = "program";
  std::vector<char*> argv{name.data()};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(1, argv.data(), fail_on_one), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "error: rank 1: boom\n");
}

}  // namespace
}  // namespace coshard::test
