#pragma once
// Where in the program a call stands; what std::source_location is for, which clang 14 does not
// offer with libstdc++. A value; `current()` as a default argument is the place of the call.

namespace coshard {

struct CallSite {
  const char* file = "";  // static text
  int line = 0;           // 0: unknown

  static constexpr CallSite current(const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

}  // namespace coshard
