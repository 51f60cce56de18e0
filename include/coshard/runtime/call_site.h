#pragma once
// Where in the program a call stands; what std::source_location is for, which clang 14 does not
// offer with libstdc++. A value; `current()` as a default argument is the place of the call.
#include <string_view>

namespace coshard {

struct CallSite {
  const char* file = "";  // static text
  int line = 0;           // 0: unknown

#ifdef COSHARD_LIBRARY
  // A line of the library tells its user nothing: calls from here have no place, and what they do
  // is put down to the user's call that led here (coro/user_call.h).
  static constexpr CallSite current() noexcept { return {}; }
#else
  static constexpr CallSite current(const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
#endif
  constexpr bool known() const noexcept { return line != 0; }
};

// What a text can say of where something was asked for.
struct Place {
  CallSite site;               // the user's line
  std::string_view operation;  // the operator that needs it by itself; static text
  std::string_view module;     // path of the module; static text
};

}  // namespace coshard
