#pragma once
// How a program ended.
#include <string>

namespace coshard::job {

struct ExitStatus {
  enum class Kind {
    Exited,      // value: exit code
    Killed,      // value: signal
    NotStarted,  // value: errno
    Lost,        // the connection of its guard has ended; `why`
    Missing,     // its guard did not connect; value: the timeout in milliseconds
    Unwritten,   // its output could not be written; value: errno
  };
  Kind kind = Kind::Exited;
  int value = 0;
  std::string why = "";

  bool operator==(const ExitStatus&) const = default;
  bool ok() const { return kind == Kind::Exited && value == 0; }
  // As in a shell: 128 + signal; 127 if there is no such program, 126 if it cannot run.
  int code() const;
  // "exited with code 2", "was killed by SIGSEGV", "was killed by SIGKILL (out of memory?)"
  std::string text() const;
};

// From waitpid.
ExitStatus exit_status_of(int status);
// One word, to send to another process, and back. Error{CommFailed}: not such a word.
std::string to_word(const ExitStatus& exit_status);
ExitStatus exit_status_of(const std::string& word);

}  // namespace coshard::job
