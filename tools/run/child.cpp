#include "tools/run/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace coshard::job {
namespace {

using Pipe = std::array<int, 2>;

Pipe make_pipe() {
  Pipe ends{-1, -1};
  (void)::pipe2(ends.data(), O_CLOEXEC);
  return ends;
}

Pipe null_pipe() { return {::open("/dev/null", O_RDONLY | O_CLOEXEC), -1}; }

void close_all(std::initializer_list<int> ends) {
  for (const int end : ends)
    if (end >= 0) ::close(end);
}

void set_apart(Apart apart, pid_t parent) {
  if (apart == Apart::Session) {
    ::setsid();
    return;
  }
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent has died already
}

// Runs in the new process; returns only on failure, with errno.
int become(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // this process may ignore it
  ::execvp(argv[0], argv.data());
  return errno;
}

// 0 once the program runs, which closes the pipe.
int error_from(const Pipe& told) {
  ::close(told[1]);
  int error = 0;
  ssize_t size = 0;
  do size = ::read(told[0], &error, sizeof error);
  while (size < 0 && errno == EINTR);
  ::close(told[0]);
  return size == sizeof error ? error : 0;
}

}  // namespace

Child start(const std::vector<std::string>& command, Apart apart, const Environment& added,
            const std::vector<std::string>& removed, OrphanReaper* reaper, Stdin stdin_is) {
  const Pipe in = stdin_is == Stdin::Pipe ? make_pipe() : null_pipe();
  const Pipe out = make_pipe(), err = make_pipe(), told = make_pipe();
  const pid_t parent = ::getpid();
  Child child{told[1] < 0 ? -1 : ::fork(), out[0], err[0], in[1], 0};
  if (child.pid == 0) {
    set_apart(apart, parent);
    if (reaper != nullptr) reaper->set(::getpid());
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const std::string& name : removed) ::unsetenv(name.c_str());
    for (const auto& [name, value] : added) ::setenv(name.c_str(), value.c_str(), 1);
    const int error = become(command);
    (void)!::write(told[1], &error, sizeof error);
    ::_exit(127);
  }
  child.error = child.pid < 0 ? errno : error_from(told);
  close_all({in[0], out[1], err[1]});
  if (child.error == 0) return child;
  if (child.pid > 0)
    ::waitpid(child.pid, nullptr, 0);
  else
    close_all({told[0], told[1]});
  close_all({in[1], out[0], err[0]});
  return {0, -1, -1, -1, child.error};
}

}  // namespace coshard::job
