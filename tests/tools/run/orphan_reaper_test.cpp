#include "tools/run/orphan_reaper.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace coshard::job {
namespace {

using HeldPipe = std::array<int, 2>;

// Nobody holds the other end any more.
bool ends(int fd, int milliseconds) {
  pollfd end{fd, POLLIN, 0};
  return ::poll(&end, 1, milliseconds) == 1 && (end.revents & POLLHUP) != 0;
}

void sleep_in_group(pid_t group) {
  ::setpgid(0, group);
  ::execlp("sleep", "sleep", "600", nullptr);
  ::_exit(1);
}

// A process that has a group of two others, which hold `held`; it has told its will of that, and at
// last that there is none.
pid_t process_with_group(const HeldPipe& held, bool forgets) {
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::setpgid(0, 0);
  OrphanReaper reaper;
  const pid_t first = ::fork();
  if (first == 0) sleep_in_group(0);
  ::setpgid(first, first);
  if (::fork() == 0) sleep_in_group(first);
  reaper.set(first);
  if (forgets) reaper.set(0);
  (void)!::write(held[1], &first, sizeof first);
  ::close(held[1]);
  for (;;) ::pause();
}

TEST(OrphanReaper, KillsTheGroupOfAProcessThatIsKilledWithItsOwnGroup) {
  for (const bool forgets : {false, true}) {
    HeldPipe held;
    ASSERT_EQ(::pipe(held.data()), 0);
    const pid_t process = process_with_group(held, forgets);
    ::close(held[1]);
    pid_t group = 0;
    ASSERT_EQ(::read(held[0], &group, sizeof group), static_cast<ssize_t>(sizeof group));
    ::kill(-process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    EXPECT_EQ(ends(held[0], forgets ? 300 : 30'000), !forgets);
    ::kill(-group, SIGKILL);
    ::close(held[0]);
  }
}

TEST(OrphanReaper, IsThereAtOnceForAProcessThatIsKilledWithItsGroup) {
  for (int i = 0; i < 30; ++i) {
    HeldPipe held;
    ASSERT_EQ(::pipe(held.data()), 0);
    const pid_t process = ::fork();
    if (process == 0) {
      ::setpgid(0, 0);
      const pid_t waiter_state = ::fork();
      if (waiter_state == 0) sleep_in_group(0);
      ::setpgid(waiter_state, waiter_state);
      OrphanReaper reaper;
      (void)!::write(held[1], &waiter_state, sizeof waiter_state);
      reaper.set(waiter_state);
      ::kill(0, SIGKILL);
    }
    ::close(held[1]);
    ::waitpid(process, nullptr, 0);
    pid_t waiter_state = 0;
    ASSERT_EQ(::read(held[0], &waiter_state, sizeof waiter_state),
              static_cast<ssize_t>(sizeof waiter_state));
    const bool ended = ends(held[0], 10'000);
    if (!ended) ::kill(-waiter_state, SIGKILL);
    ASSERT_TRUE(ended) << i;
    ::close(held[0]);
  }
}

TEST(OrphanReaper, LeavesNoProcess) {
  { OrphanReaper reaper; }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace coshard::job
