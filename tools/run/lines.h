#pragma once
// Assembles a rank's output into whole lines, each with the rank's prefix, so that lines of
// different ranks do not mix. A line longer than 1 MiB is written in parts, as lines of their own if
// there is a prefix.
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
  void end();  // writes a last line without a newline; with a prefix it gets one
  // The last line that begins with "error: ", else the last that is no warning or blank; truncated.
  const std::string& last() const { return error_.empty() ? last_ : error_; }
  // The last "  what():  " of an uncaught exception, which a crash handler's lines may follow.
  const std::string& uncaught() const { return uncaught_; }
  const std::string& error() const { return error_; }  // such an "error: " line; "": there was none
  std::chrono::steady_clock::time_point error_at() const { return error_at_; }  // when that arrived

 private:
  void write(std::string_view lines);

  std::string prefix_;
  Write out_;
  std::string begun_;  // an unfinished line
  std::string last_, error_, uncaught_;
  std::chrono::steady_clock::time_point error_at_;
};

}  // namespace coshard::job
