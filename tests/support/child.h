#pragma once
// Runs a body in a forked child that is killed after a limit, so that code that would hang or end
// the process fails the test instead. Not while other threads run: fork copies only the caller's.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace coshard::testing {

struct Child {
  using Seconds = std::chrono::duration<double>;
  struct Piece {
    Seconds after;  // since the fork
    std::string text;
  };
  int code = -1;    // exit code; -1: it was killed
  int signal = 0;   // what killed it; SIGALRM: the limit
  Seconds lived{};  // until it ended
  std::vector<Piece> pieces;

  std::string text() const {
    std::string all;
    for (const Piece& piece : pieces) all += piece.text;
    return all;
  }
  // When `what` had been written; an hour if never.
  Seconds wrote(std::string_view what) const {
    std::string so_far;
    for (const Piece& piece : pieces) {
      so_far += piece.text;
      if (so_far.find(what) != std::string::npos) return piece.after;
    }
    return std::chrono::hours(1);
  }
};

inline std::ostream& operator<<(std::ostream& out, const Child& child) {
  return out << "code " << child.code << ", signal " << child.signal << ", after "
             << child.lived.count() << " s, wrote: " << child.text();
}

[[noreturn]] inline void be_the_child(int write_end, int (*body)(), unsigned limit_s) {
  ::dup2(write_end, STDERR_FILENO);
  ::dup2(write_end, STDOUT_FILENO);
  ::alarm(limit_s);
  int code = 99;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "thrown: %s\n", error.what());
  } catch (...) {
    std::fprintf(stderr, "thrown: no std::exception\n");
  }
  std::fflush(nullptr);
  ::_exit(code);
}

// Runs body() in a child; its result is the exit code (99: it threw). Captures its output.
inline Child in_child(int (*body)(), unsigned limit_s) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = ::fork();
  if (pid == 0) be_the_child(ends[1], body, limit_s);
  ::close(ends[1]);
  Child child;
  char bytes[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
    child.pieces.push_back({std::chrono::steady_clock::now() - begin,
                            std::string(bytes, static_cast<std::size_t>(n))});
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  child.lived = std::chrono::steady_clock::now() - begin;
  if (WIFEXITED(status)) child.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) child.signal = WTERMSIG(status);
  return child;
}

}  // namespace coshard::testing
