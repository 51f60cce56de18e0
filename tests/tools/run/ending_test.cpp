#include "tools/run/ending.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

#include <coshard/runtime/error.h>

namespace coshard::job {
namespace {

using Kind = Ending::Kind;

TEST(Ending, HasTheCodeThatAShellGives) {
  EXPECT_EQ((Ending{Kind::Exited, 3}.code()), 3);
  EXPECT_EQ((Ending{Kind::Killed, SIGKILL}.code()), 137);
  EXPECT_EQ((Ending{Kind::NotStarted, ENOENT}.code()), 127);
  EXPECT_EQ((Ending{Kind::NotStarted, EACCES}.code()), 126);
  EXPECT_EQ((Ending{Kind::Lost, 0}.code()), 1);
  EXPECT_EQ((Ending{Kind::Missing, 60}.code()), 1);
  EXPECT_EQ((Ending{Kind::Unwritten, ENOSPC}.code()), 1);
  EXPECT_EQ((Ending{Kind::Unwritten, EPIPE}.code()), 128 + SIGPIPE);
}

TEST(Ending, OnlyExitCodeZeroIsNoFailure) {
  EXPECT_TRUE((Ending{Kind::Exited, 0}.ok()));
  EXPECT_FALSE((Ending{Kind::Exited, 1}.ok()));
  EXPECT_FALSE((Ending{Kind::Lost, 0}.ok()));
}

TEST(Ending, SaysWhatHappened) {
  EXPECT_EQ((Ending{Kind::Exited, 2}.text()), "exited with code 2");
  EXPECT_EQ((Ending{Kind::Killed, SIGSEGV}.text()), "was killed by SIGSEGV");
  EXPECT_NE((Ending{Kind::Killed, SIGKILL}.text()).find("memory"), std::string::npos);
  EXPECT_EQ((Ending{Kind::Killed, 40}.text()), "was killed by signal 40");
  EXPECT_EQ((Ending{Kind::NotStarted, ENOENT}.text()),
            "could not be started: No such file or directory");
  EXPECT_EQ((Ending{Kind::Missing, 60'000}.text()), "has not started within 60 s");
  EXPECT_EQ((Ending{Kind::Lost, 0, "its connection closed"}.text()),
            "was lost: its connection closed");
  EXPECT_EQ((Ending{Kind::Unwritten, ENOSPC}.text()),
            "could not be written: No space left on device");
}

TEST(Ending, IsWhatWaitpidSays) {
  EXPECT_EQ(ending_of(3 << 8).text(), "exited with code 3");
  EXPECT_EQ(ending_of(SIGTERM).text(), "was killed by SIGTERM");
  EXPECT_EQ(ending_of(SIGSEGV | 0x80).text(), "was killed by SIGSEGV");  // with a core
}

TEST(Ending, GoesThroughAWordUnchanged) {
  for (const Ending& ending :
       {Ending{Kind::Exited, 255}, Ending{Kind::Killed, 9}, Ending{Kind::NotStarted, 2},
        Ending{Kind::Lost, 0}, Ending{Kind::Unwritten, 28}}) {
    const Ending back = ending_of(to_word(ending));
    EXPECT_EQ(back.kind, ending.kind);
    EXPECT_EQ(back.value, ending.value);
  }
  for (const char* word : {"", "x", "q3", "3", "x3y"}) EXPECT_THROW(ending_of(word), Error) << word;
}

}  // namespace
}  // namespace coshard::job
