#include "tools/run/orphan_reaper.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace coshard::job {
namespace {

// Descriptors left open here would keep the launcher's pipes from reaching their end.
void close_all_but(int kept) {
  ::close_range(0, static_cast<unsigned>(kept) - 1, 0);
  ::close_range(static_cast<unsigned>(kept) + 1, ~0U, 0);
}

// Runs in the new process, which ignores all these signals; only SIGKILL ends it.
[[noreturn]] void wait_and_kill(int pipe) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE})
    ::signal(signal, SIG_IGN);
  close_all_but(pipe);
  pid_t last = 0, group = 0;
  ssize_t size = 0;
  while ((size = ::read(pipe, &group, sizeof group)) > 0 || (size < 0 && errno == EINTR))
    if (size > 0) last = group;
  if (last > 0) ::kill(-last, SIGKILL);
  ::_exit(0);
}

}  // namespace

OrphanReaper::OrphanReaper() {
  if (::pipe2(pipe_.data(), O_CLOEXEC) == 0) helper_ = ::fork();
  if (helper_ != 0) {
    ::setpgid(helper_, 0);  // here, in case this process is killed before it has run
    ::close(pipe_[0]);
    return;
  }
  ::close(pipe_[1]);
  wait_and_kill(pipe_[0]);
}

OrphanReaper::~OrphanReaper() {
  ::close(pipe_[1]);
  if (helper_ > 0) ::waitpid(helper_, nullptr, 0);
}

void OrphanReaper::set(pid_t group) { (void)!::write(pipe_[1], &group, sizeof group); }

}  // namespace coshard::job
