#pragma once
// Which rank a rank's last error blames, if the error is the library's: coshard::run() writes that
// of its own rank once it fails, and then waits for the others.
#include <optional>
#include <string>
#include <string_view>

namespace coshard::job {

// "error: rank 2, layers.1: no memory"
bool is_of_a_rank(std::string_view error);

struct Blame {
  bool process = false;  // number: of a process, else of a rank
  int number = 0;
  std::string text;    // "rank 2 ended with: no memory"
  std::string reason;  // "no memory"; of a process: ""
};
// "train: rank 2 ended with: no memory", or a process has died. A program's own words may match.
std::optional<Blame> blame_of(std::string_view words);

}  // namespace coshard::job
