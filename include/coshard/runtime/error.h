#pragma once
// coshard's one error type: a kind and a one-line message that names the values. Thrown by every
// layer; below `run`, only task promises and the world's shutdown catch it.
#include <exception>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/runtime/call_site.h>

#pragma GCC visibility push(default)
namespace coshard {

enum class ErrorKind {
  BadInput,      // the caller's arguments are wrong; nothing was changed
  Unsupported,   // this build or backend lacks what was requested
  DeviceFailed,  // a device call failed
  CommFailed,    // a collective failed, or its communicator was poisoned by an earlier failure
  Timeout,       // a deadline passed; the message names who is missing
  Cancelled,     // a stop was requested; never logged as an error
};

std::string_view to_string(ErrorKind kind);

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ErrorKind kind() const noexcept { return kind_; }
  // "linear: inner dimensions differ: …". what() is prefixed with "rank 1, layers.0.mlp: " once the
  // error has left that module, or that rank's program; a message that already names one keeps it.
  const char* message() const noexcept { return std::runtime_error::what(); }
  const char* what() const noexcept override { return told_.empty() ? message() : told_.c_str(); }
  // Records that it has left the module at `path`, or the program (""); only the first call counts.
  void left(int rank, std::string_view path);
  // The user's call site that the library was working for when it was created, if any.
  const CallSite& site() const noexcept { return site_; }
  // Of a Timeout: ranks of the world that have not taken part, ascending. Empty: unknown.
  const std::vector<int>& missing() const noexcept { return missing_; }
  void note_missing(std::vector<int> ranks) { missing_ = std::move(ranks); }

 private:
  ErrorKind kind_;
  CallSite site_;
  std::string told_;
  std::vector<int> missing_;
};

// How errors show a value: brief(value), in one line, if it exists; else `<<`.
template <class T>
decltype(auto) in_one_line(const T& value) {
  if constexpr (requires { brief(value); })
    return brief(value);
  else
    return (value);
}

// Joins printable operands into one string, alike in every locale of the program:
// str_cat("dim ", 3, " of ", shape).
template <class... Args>
std::string str_cat(const Args&... args) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  (out << ... << in_one_line(args));
  return out.str();
}

[[noreturn]] void fail(ErrorKind kind, const std::string& message);

// Its what(), or "exception of type Mine".
std::string text_of(const std::exception_ptr& error);
// The same without the prefix of an Error.
std::string message_of(const std::exception_ptr& error);
// Records in an Error that it has left a module of this rank, or its program.
void note_left(const std::exception_ptr& error, int rank, std::string_view path);

}  // namespace coshard
#pragma GCC visibility pop

// Throws Error{BadInput} with the joined operands when `condition` is false.
#define CS_REQUIRE(condition, ...)                                                      \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::coshard::fail(::coshard::ErrorKind::BadInput, ::coshard::str_cat(__VA_ARGS__)); \
  } while (false)
