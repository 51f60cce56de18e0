#pragma once
// A program that runs beside the test: its output is read while it runs, and signals are sent to
// it. Owned by the test, used on its thread; killed when it goes out of scope.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace coshard::testing {

class Child {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPatience{60};

  // SIGINT and SIGTERM have their default action in it, whatever they have here.
  explicit Child(const std::vector<std::string>& command);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }
  // Reads until stdout (or stderr) contains `text`; false when the program ended, or kPatience
  // passed, without it.
  bool says(const std::string& text) { return read_until(out_, text); }
  bool complains(const std::string& text) { return read_until(err_, text); }
  void send(int signal) const { ::kill(pid_, signal); }
  // Reads the rest. The exit code, or minus the signal that ended it; nothing after kPatience.
  std::optional<int> end();

 private:
  struct Stream {
    int fd = -1;
    std::string text;
  };
  static void read_some(Stream& stream);
  bool read(Clock::time_point until);  // false: both streams are at their end, or it is late
  bool read_until(const Stream& stream, const std::string& text);

  pid_t pid_ = 0;
  Stream out_, err_;
  std::optional<int> ended_;
};

inline Child::Child(const std::vector<std::string>& command) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe is left");
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  sigaddset(&defaults, SIGTERM);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int failed = posix_spawnp(&pid_, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(out[1]);
  ::close(err[1]);
  out_.fd = out[0];
  err_.fd = err[0];
  if (failed != 0) throw std::runtime_error("cannot start " + command[0]);
}

inline Child::~Child() {
  if (!ended_) {
    send(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_.fd >= 0) ::close(out_.fd);
  if (err_.fd >= 0) ::close(err_.fd);
}

inline void Child::read_some(Stream& stream) {
  char block[4096];
  const ssize_t n = ::read(stream.fd, block, sizeof block);
  if (n > 0) {
    stream.text.append(block, static_cast<std::size_t>(n));
  } else {
    ::close(stream.fd);
    stream.fd = -1;
  }
}

inline bool Child::read(Clock::time_point until) {
  if (out_.fd < 0 && err_.fd < 0) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd fds[] = {{out_.fd, POLLIN, 0}, {err_.fd, POLLIN, 0}};
  if (left <= 0 || ::poll(fds, 2, static_cast<int>(left)) <= 0) return false;
  if (fds[0].revents != 0) read_some(out_);
  if (fds[1].revents != 0) read_some(err_);
  return true;
}

inline bool Child::read_until(const Stream& stream, const std::string& text) {
  const auto until = Clock::now() + kPatience;
  while (stream.text.find(text) == std::string::npos)
    if (!read(until)) return false;
  return true;
}

inline std::optional<int> Child::end() {
  const auto until = Clock::now() + kPatience;
  while (read(until)) {
  }
  int status = 0;
  while (!ended_ && ::waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > until) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!ended_) ended_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  return ended_;
}

}  // namespace coshard::testing
