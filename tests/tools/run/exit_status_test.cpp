#include "tools/run/exit_status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include <coshard/runtime/error.h>

namespace coshard::job {
namespace {

using Kind = ExitStatus::Kind;

TEST(ExitStatus, HasTheCodeThatAShellGives) {
  EXPECT_EQ((ExitStatus{Kind::Exited, 3}.code()), 3);
  EXPECT_EQ((ExitStatus{Kind::Killed, SIGKILL}.code()), 137);
  EXPECT_EQ((ExitStatus{Kind::NotStarted, ENOENT}.code()), 127);
  EXPECT_EQ((ExitStatus{Kind::NotStarted, EACCES}.code()), 126);
  EXPECT_EQ((ExitStatus{Kind::Lost, 0}.code()), 1);
  EXPECT_EQ((ExitStatus{Kind::Missing, 60}.code()), 1);
  EXPECT_EQ((ExitStatus{Kind::Unwritten, ENOSPC}.code()), 1);
  EXPECT_EQ((ExitStatus{Kind::Unwritten, EPIPE}.code()), 128 + SIGPIPE);
}

TEST(ExitStatus, OnlyExitCodeZeroIsNoFailure) {
  EXPECT_TRUE((ExitStatus{Kind::Exited, 0}.ok()));
  EXPECT_FALSE((ExitStatus{Kind::Exited, 1}.ok()));
  EXPECT_FALSE((ExitStatus{Kind::Lost, 0}.ok()));
}

TEST(ExitStatus, SaysWhatHappened) {
  EXPECT_EQ((ExitStatus{Kind::Exited, 2}.text()), "exited with code 2");
  EXPECT_EQ((ExitStatus{Kind::Killed, SIGSEGV}.text()), "was killed by SIGSEGV");
  EXPECT_NE((ExitStatus{Kind::Killed, SIGKILL}.text()).find("memory"), std::string::npos);
  EXPECT_EQ((ExitStatus{Kind::Killed, 40}.text()), "was killed by signal 40");
  EXPECT_EQ((ExitStatus{Kind::NotStarted, ENOENT}.text()),
            "could not be started: No such file or directory");
  EXPECT_EQ((ExitStatus{Kind::Missing, 60'000}.text()), "has not started within 60 s");
  EXPECT_EQ((ExitStatus{Kind::Lost, 0, "its connection closed"}.text()),
            "was lost: its connection closed");
  EXPECT_EQ((ExitStatus{Kind::Unwritten, ENOSPC}.text()),
            "could not be written: No space left on device");
}

TEST(ExitStatus, IsWhatWaitpidSays) {
  EXPECT_EQ(exit_status_of(3 << 8).text(), "exited with code 3");
  EXPECT_EQ(exit_status_of(SIGTERM).text(), "was killed by SIGTERM");
  EXPECT_EQ(exit_status_of(SIGSEGV | 0x80).text(), "was killed by SIGSEGV");  // with a core
}

TEST(ExitStatus, GoesThroughAWordUnchanged) {
  for (const ExitStatus& exit_status :
       {ExitStatus{Kind::Exited, 255}, ExitStatus{Kind::Killed, 9}, ExitStatus{Kind::NotStarted, 2},
        ExitStatus{Kind::Lost, 0}, ExitStatus{Kind::Unwritten, 28}}) {
    const ExitStatus back = exit_status_of(to_word(exit_status));
    EXPECT_EQ(back.kind, exit_status.kind);
    EXPECT_EQ(back.value, exit_status.value);
  }
  for (const char* word : {"", "x", "q3", "3", "x3y"})
    EXPECT_THROW(exit_status_of(word), Error) << word;
}

}  // namespace
}  // namespace coshard::job
