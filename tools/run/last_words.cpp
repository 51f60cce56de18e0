#include "tools/run/last_words.h"

#include <regex>
#include <string>

namespace coshard::job {
namespace {

bool matches(std::string_view text, const char* pattern) {
  return std::regex_search(text.begin(), text.end(), std::regex(pattern));
}

}  // namespace

// A program that catches an operation's error may prefix the operation: "... failed: ".
bool is_of_another(std::string_view words) {
  return matches(words,
                 "^(error: )?(rank [0-9]+(, [^:]*)?: )?(.* failed: )?"
                 "(rank [0-9]+ ended with: |"
                 "(ranks? [0-9]+( to [0-9]+)?, )?process [0-9]+ \\(pid [0-9]+ on [^)]*\\) has "
                 "(died: |ended with exit code ))");
}

bool is_of_a_rank(std::string_view error) {
  return matches(error, "^error: rank [0-9]+[:,] ") && !is_of_another(error);
}

}  // namespace coshard::job
