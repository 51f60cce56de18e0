#pragma once
// The source location of a call, as std::source_location, which clang 14 does not offer with
// libstdc++. A value; `current()` as a default argument is the caller's location.
#include <string_view>

#pragma GCC visibility push(default)
namespace coshard {

struct CallSite {
  const char* file = "";  // static text
  int line = 0;           // 0: unknown

#ifdef COSHARD_LIBRARY
  // Library lines mean nothing to its user: calls from here have no location and are attributed to
  // the user's call that led here (coro/user_call.h).
  static constexpr CallSite current() noexcept { return {}; }
#else
  static constexpr CallSite current(const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
#endif
  constexpr bool known() const noexcept { return line != 0; }
};

// The origin of a request, for error messages.
struct CallLocation {
  CallSite site;               // the user's line
  std::string_view operation;  // the operator that needs it implicitly; static text
  std::string_view module;     // path of the module; static text
  std::string_view called;     // the operator that the user's line calls, if any; static text
  CallSite last;               // the user's line that called the library last
};

}  // namespace coshard
#pragma GCC visibility pop
