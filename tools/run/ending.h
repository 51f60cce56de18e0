#pragma once
// How a program ended.
#include <string>

namespace coshard::job {

struct Ending {
  enum class Kind {
    Exited,      // value: exit code
    Killed,      // value: signal
    NotStarted,  // value: errno
    Lost,        // its guard is gone; value: errno of its connection, or 0
    Missing,     // its guard did not come; value: within so many seconds
    Unwritten,   // what it wrote could not be written on; value: errno
  };
  Kind kind = Kind::Exited;
  int value = 0;

  bool operator==(const Ending&) const = default;
  bool ok() const { return kind == Kind::Exited && value == 0; }
  // As a shell has it: 128 + signal; 127 where there is no such program, 126 where it cannot run.
  int code() const;
  // "exited with code 2", "was killed by SIGKILL"
  std::string text() const;
};

// From waitpid.
Ending ending_of(int status);
// One word, for another process, and back. Error{CommFailed}: it is none.
std::string to_word(const Ending& ending);
Ending ending_of(const std::string& word);

}  // namespace coshard::job
