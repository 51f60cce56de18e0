#include "tools/run/child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace coshard::job {
namespace {

std::string all_of(int fd) {
  std::string text;
  char piece[256];
  for (ssize_t size; (size = ::read(fd, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(size));
  ::close(fd);
  return text;
}

int status_of(const Child& child) {
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  return status;
}

TEST(Child, HasItsOwnPipesAndEnvironment) {
  ::setenv("COSHARD_CHILD_TEST", "old", 1);
  ::setenv("COSHARD_CHILD_GONE", "old", 1);
  const Child child =
      start({"sh", "-c", "echo $COSHARD_CHILD_TEST; echo [$COSHARD_CHILD_GONE] >&2"}, Apart::Group,
            {{"COSHARD_CHILD_TEST", "new"}}, {"COSHARD_CHILD_GONE"});
  ASSERT_EQ(child.error, 0);
  EXPECT_EQ(all_of(child.out), "new\n");
  EXPECT_EQ(all_of(child.err), "[]\n");
  EXPECT_EQ(status_of(child), 0);
  EXPECT_STREQ(std::getenv("COSHARD_CHILD_TEST"), "old");
}

TEST(Child, ThatCannotBeStartedSaysWhy) {
  EXPECT_EQ(start({"/nowhere/program"}, Apart::Session, {}).error, ENOENT);
  EXPECT_EQ(start({"/etc/passwd"}, Apart::Group, {}).error, EACCES);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // and leaves nothing
}

TEST(Child, EndsBySigpipeThoughThisProcessDoesNot) {
  ::signal(SIGPIPE, SIG_IGN);
  const Child child = start({"sh", "-c", "kill -PIPE $$; echo here"}, Apart::Group, {});
  ::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(all_of(child.out), "");
  EXPECT_EQ(WTERMSIG(status_of(child)), SIGPIPE);
  ::close(child.err);
}

TEST(Child, ReadsAPipeOrNothing) {
  for (const Stdin in : {Stdin::Empty, Stdin::Pipe}) {
    const Child child = start({"sh", "-c", "echo \"[$(cat)]\""}, Apart::Group, {}, {}, nullptr, in);
    if (in == Stdin::Pipe) {
      EXPECT_EQ(::write(child.in, "text", 4), 4);
      ::close(child.in);
    } else {
      EXPECT_EQ(child.in, -1);
    }
    EXPECT_EQ(all_of(child.out), in == Stdin::Pipe ? "[text]\n" : "[]\n");
    EXPECT_EQ(status_of(child), 0);
    ::close(child.err);
  }
}

TEST(Child, IsApart) {
  for (const Apart apart : {Apart::Group, Apart::Session}) {
    const Child child = start({"sleep", "60"}, apart, {});
    EXPECT_EQ(::getpgid(child.pid), child.pid);
    EXPECT_EQ(::getsid(child.pid) == child.pid, apart == Apart::Session);
    ::kill(-child.pid, SIGKILL);
    EXPECT_EQ(WTERMSIG(status_of(child)), SIGKILL);
    ::close(child.out);
    ::close(child.err);
  }
}

TEST(Child, HasItsGroupInTheWillBeforeItStartsOthers) {
  std::array<int, 2> held{};  // by all that is to end
  ASSERT_EQ(::pipe(held.data()), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    OrphanReaper reaper;
    const Child child =
        start({"sh", "-c", "sleep 600 & echo; exec sleep 600"}, Apart::Group, {}, {}, &reaper);
    char line = 0;
    if (::read(child.out, &line, 1) == 1) ::raise(SIGKILL);
    ::_exit(1);
  }
  ::close(held[1]);
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  pollfd end{held[0], POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 30'000), 1);
  ::close(held[0]);
}

}  // namespace
}  // namespace coshard::job
