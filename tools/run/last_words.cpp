#include "tools/run/last_words.h"

#include <cstdlib>
#include <regex>

namespace coshard::job {

// The library's words may follow a prefix of the program, "train: ", or of std::terminate,
// "  what():  ", and the operation that failed: "... failed: ". Each as short as possible.
std::optional<Blame> blame_of(std::string_view words) {
  static const std::regex pattern(
      "^([^:]{1,64}: +)??"
      "(rank [0-9]+(, [^:]*)?: )??"
      "(.*? failed: )??"
      "(rank ([0-9]+) ended with: (.*)|"
      "(ranks? [0-9]+( to [0-9]+)?, |^error: )process ([0-9]+) \\(pid [0-9]+ on [^)]*\\) has "
      "(died: |ended with exit code ).*)");
  std::match_results<std::string_view::const_iterator> found;
  if (!std::regex_search(words.begin(), words.end(), found, pattern)) return std::nullopt;
  const bool process = found[10].matched;
  return Blame{process, std::atoi(found[process ? 10 : 6].str().c_str()), found[5], found[7]};
}

bool is_of_a_rank(std::string_view error) {
  static const std::regex pattern("^error: rank [0-9]+(: |, (?!process [0-9]+ \\(pid ))");
  return std::regex_search(error.begin(), error.end(), pattern);
}

}  // namespace coshard::job
