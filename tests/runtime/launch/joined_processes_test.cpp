#include "runtime/launch/joined_processes.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

namespace coshard {
namespace {

using Present = std::vector<int>;

TEST(JoinedProcesses, NamesTheProcessesThatHaveCome) {
  const int job = ::getpid();
  const JoinedProcesses zero(job, 0);
  auto two = std::make_unique<JoinedProcesses>(job, 2);
  const JoinedProcesses of_another_job(job + 1, 1);
  EXPECT_EQ(zero.here(4), (Present{0, 2}));
  EXPECT_EQ(two->here(2), (Present{0}));
  two.reset();
  EXPECT_EQ(zero.here(4), (Present{0}));
}

TEST(JoinedProcesses, SaysWhoIsAbsent) {
  EXPECT_EQ(absence_text(4, 4, {0, 2}), "processes 1, 3 have not called run()");
  EXPECT_EQ(absence_text(2, 2, {1}), "process 0 has not called run()");
  EXPECT_EQ(absence_text(4, 2, {2}), "of the 2 processes on this host only 2 has called run()");
  EXPECT_EQ(absence_text(4, 2, {2, 3}),
            "all processes of this host have called run(), but not all of the others");
  EXPECT_EQ(absence_text(2, 2, {0, 1}), "all processes have called run()");
  EXPECT_EQ(absence_text(4, 4, {}), "not all of the 4 processes have called run()");
  EXPECT_EQ(absence_text(4, 0, {1}), "not all of the 4 processes have called run()");
}

// mpirun -> sh -> the program, say.
TEST(JoinedProcesses, TheLauncherIsFoundAboveOtherParents) {
  const int launcher = ::fork();
  if (launcher == 0) {
    ::prctl(PR_SET_NAME, "mpirun.(x) y");
    const int shell = ::fork();
    if (shell == 0) {
      ::prctl(PR_SET_NAME, "sh");
      ::_exit(launcher_above(::getpid()) == ::getppid() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(shell, &status, 0);
    ::_exit(WEXITSTATUS(status));
  }
  int status = 0;
  ::waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(launcher_above(1), 0);
}

}  // namespace
}  // namespace coshard
