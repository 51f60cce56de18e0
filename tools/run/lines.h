#pragma once
// Puts what a rank writes together to whole lines, each after the rank's prefix, so that the lines
// of ranks do not mix.
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace coshard::job {

class Lines {
 public:
  using Write = std::function<void(std::string_view)>;
  Lines(std::string prefix, Write out) : prefix_(std::move(prefix)), out_(std::move(out)) {}
  void add(std::string_view text);
  void end();  // writes a last line that has no newline; with a prefix it gets one
  // The last line that begins with "error: ", or else the last that was not empty, nor a warning; cut.
  const std::string& last() const { return error_.empty() ? last_ : error_; }
  const std::string& error() const { return error_; }  // such an "error: " line; "": there was none
  std::chrono::steady_clock::time_point error_at() const { return error_at_; }  // when that came

 private:
  void write(std::string_view lines);

  std::string prefix_;
  Write out_;
  std::string begun_;  // a line without its newline yet
  std::string last_, error_;
  std::chrono::steady_clock::time_point error_at_;
};

}  // namespace coshard::job
