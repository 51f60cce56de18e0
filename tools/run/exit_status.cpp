#include "tools/run/exit_status.h"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <coshard/runtime/error.h>
#include "runtime/parse_number.h"

namespace coshard::job {
namespace {

constexpr char kLetters[] = "xkslmu";  // by kind

std::string signal_text(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? str_cat("SIG", name) : str_cat("signal ", signal);
}

}  // namespace

int ExitStatus::code() const {
  switch (kind) {
    case Kind::Exited: return value;
    case Kind::Killed: return 128 + value;
    case Kind::NotStarted: return value == ENOENT ? 127 : 126;
    case Kind::Unwritten: return value == EPIPE ? 128 + SIGPIPE : 1;
    case Kind::Lost:
    case Kind::Missing: break;
  }
  return 1;
}

std::string ExitStatus::text() const {
  switch (kind) {
    case Kind::Exited: return str_cat("exited with code ", value);
    case Kind::Killed:
      return str_cat("was killed by ", signal_text(value),
                     value == SIGKILL ? " (out of memory?)" : "");
    case Kind::NotStarted: return str_cat("could not be started: ", std::strerror(value));
    case Kind::Missing: return str_cat("has not started within ", value / 1000.0, " s");
    case Kind::Unwritten: return str_cat("could not be written: ", std::strerror(value));
    case Kind::Lost: break;
  }
  return str_cat("was lost: ", why);
}

ExitStatus exit_status_of(int status) {
  if (WIFSIGNALED(status)) return {ExitStatus::Kind::Killed, WTERMSIG(status), ""};
  return {ExitStatus::Kind::Exited, WEXITSTATUS(status), ""};
}

std::string to_word(const ExitStatus& exit_status) {
  return kLetters[static_cast<int>(exit_status.kind)] + std::to_string(exit_status.value);
}

ExitStatus exit_status_of(const std::string& word) {
  const char* letter = word.empty() ? nullptr : std::strchr(kLetters, word[0]);
  if (letter == nullptr) fail(ErrorKind::CommFailed, "not how a program ends: " + word);
  return {static_cast<ExitStatus::Kind>(letter - kLetters),
          parse_number("exit_status", std::string_view(word).substr(1), 0, 1 << 20), ""};
}

}  // namespace coshard::job
