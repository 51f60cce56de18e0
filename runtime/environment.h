#pragma once
// The environment of this process. Any thread, while no thread sets variables.
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coshard {

// The settings ("UCX_TLS=tcp,self") whose names start with one of `beginnings`.
inline std::vector<std::string> settings_of(std::span<const std::string_view> beginnings) {
  std::vector<std::string> found;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view setting = *each;
    if (std::ranges::any_of(beginnings, [=](auto begin) { return setting.starts_with(begin); }))
      found.emplace_back(setting);
  }
  return found;
}

}  // namespace coshard
