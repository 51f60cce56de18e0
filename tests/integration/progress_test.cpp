// The progress line of examples/train on a terminal.
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
