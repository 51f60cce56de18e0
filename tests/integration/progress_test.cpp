// The progress line: what it says, how wide it is, and what a log gets instead.
#include "examples/train/progress.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/integration/child.h"
#include "tests/integration/training.h"

namespace coshard::testing {
namespace {

using train::Look;
using train::Progress;
using train::progress_line;

TEST(Progress, ALineIsAsLongAsTheTerminalLets) {
  const auto line = [](int columns) {
    return progress_line(50, 1200, 2.34567, 5340, 0.4, 83, columns);
  };
  EXPECT_EQ(line(200),
            "step   50/1200  loss 2.3457  5340 tokens/s  40 % of communication hidden  1:23 left");
  EXPECT_EQ(line(70), "step   50/1200  loss 2.3457  5340 tokens/s  40 % hidden  1:23 left");
  EXPECT_EQ(line(40), "step   50/1200  loss 2.3457  1:23 left");
  for (int columns = 0; columns < 100; ++columns)
    EXPECT_LE(line(columns).size(), static_cast<std::size_t>(columns));
}

TEST(Progress, WithoutCommunicationNothingIsSaidOfIt) {
  EXPECT_EQ(progress_line(1, 9, 1, 10, -1, 0, 200),
            "step 1/9  loss 1.0000  10 tokens/s  0:00 left");
}

// What a Progress prints to a log for `looks` steps.
std::string logged(int looks, const Look& early, const Look& late, int turn) {
  ::testing::internal::CaptureStdout();
  Progress progress(looks, 100, 100);
  for (int step = 1; step <= looks; ++step)
    progress.step(step, 2, step <= turn ? early : late, step == looks);
  return ::testing::internal::GetCapturedStdout();
}

TEST(Progress, AllFiguresAreThoseOfTheRecentSteps) {
  const Look exposed{10, 1'000'000, 1'000'000}, hidden{5, 1'000'000, 0};
  const std::string log = logged(300, exposed, hidden, 200);
  EXPECT_NE(log.find("step 200/300  loss 2.0000  10000 tokens/s  0 % of communication hidden"),
            std::string::npos)
      << log;
  EXPECT_NE(log.find("step 300/300  loss 2.0000  20000 tokens/s  100 % of communication hidden"),
            std::string::npos)
      << log;
}

TEST(Progress, ALogGetsALineNowAndThen) {
  const std::string log = logged(250, {}, {}, 0);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 4) << log;  // 1, 100, 200, 250
  EXPECT_EQ(log.find_first_of("\r\033"), std::string::npos) << log;
}

const char* const kSmallRun =
    " --layers 1 --dim 16 --heads 2 --ffn 16 --seq 16 --batch 1 --steps 40 --sample 0 "
    "--eval-blocks 0 --text ";

// What train writes to a terminal of 40 columns of this kind.
std::string on_terminal(const char* kind) {
  const TextFile text;
  winsize size{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const std::string command =
      "NO_COLOR=1 TERM=" + std::string(kind) + " exec " TRAIN_PROGRAM + kSmallRun + text.path();
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  std::string seen;
  char block[4096];
  for (ssize_t n; (n = ::read(terminal, block, sizeof block)) > 0;)
    seen.append(block, static_cast<std::size_t>(n));
  ::close(terminal);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << seen;
  return seen;
}

TEST(Progress, FitsATerminalOf40ColumnsAndHasNoColors) {
  const std::string seen = on_terminal("xterm"), rewrite = "\r\033[K";
  int lines = 0;
  for (std::size_t at = seen.find(rewrite); at != std::string::npos; at = seen.find(rewrite, at)) {
    at += rewrite.size();
    EXPECT_LT(std::min(seen.find_first_of("\r\n", at), seen.size()) - at, 40U) << seen;
    ++lines;
  }
  EXPECT_GE(lines, 2) << seen;  // the first step and the last
  for (std::size_t at = seen.find('\033'); at != std::string::npos; at = seen.find('\033', at + 1))
    EXPECT_EQ(seen.substr(at, 3), "\033[K") << seen;
}

TEST(Progress, IsPlainOnATerminalThatCannotRewriteALine) {
  EXPECT_EQ(on_terminal("dumb").find('\033'), std::string::npos);
}

}  // namespace
}  // namespace coshard::testing
