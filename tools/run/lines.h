#pragma once
// Assembles a rank's output into whole lines, each with the rank's prefix, so that lines of
// different ranks do not mix. A line longer than 1 MiB is written in parts, as lines of their own
// if there is a prefix.
#include <functional>
#include <string>
#include <string_view>

namespace coshard::job {

class Lines {
 public:
  using Write = std::function<void(std::string_view)>;
  Lines(std::string prefix, Write out) : prefix_(std::move(prefix)), out_(std::move(out)) {}
  void add(std::string_view text);
  void end();  // writes a last line without a newline; with a prefix it gets one

 private:
  void write(std::string_view lines);

  std::string prefix_;
  Write out_;
  std::string begun_;  // an unfinished line
};

}  // namespace coshard::job
