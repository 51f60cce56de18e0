#pragma once
// The one error type of coshard: a kind and a one-line message that names the values.
// Thrown by every layer; nobody below `run` catches it except task promises and the world's
// shutdown.
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/call_site.h"

namespace coshard {

enum class ErrorKind {
  BadInput,      // the caller's arguments are wrong; nothing was changed
  Unsupported,   // asked for something this build or backend does not have
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
  // The line of the user's program that the library worked for when this was made; not known where
  // none did.
  const CallSite& site() const noexcept { return site_; }

 private:
  ErrorKind kind_;
  CallSite site_;
};

// Joins printable operands into one string: cat("dim ", 3, " of ", shape).
template <class... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

[[noreturn]] void fail(ErrorKind kind, const std::string& message);

// Its what(), or that it has none.
std::string text_of(const std::exception_ptr& error);

}  // namespace coshard

// Throws Error{BadInput} with the joined operands when `condition` is false.
#define CS_REQUIRE(condition, ...)                                                  \
  do {                                                                              \
    if (!(condition)) [[unlikely]]                                                  \
      ::coshard::fail(::coshard::ErrorKind::BadInput, ::coshard::cat(__VA_ARGS__)); \
  } while (false)
