#pragma once
// Parsing of command-line numbers. Any thread.
#include <charconv>
#include <string_view>

#include <coshard/runtime/error.h>

namespace coshard {

// A value as a message quotes it.
inline std::string_view shown(std::string_view text) { return text.empty() ? "''" : text; }

// Error{BadInput} "--ranks two: must be a number from 1 to 1024", if `text` is not a number within
// these bounds; NaN is rejected.
template <class T>
T parse_number(std::string_view name, std::string_view text, T lowest, T highest) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  CS_REQUIRE(whole && value >= lowest && value <= highest, name, " ", shown(text),
             ": must be a number from ", lowest, " to ", highest);
  return value;
}

}  // namespace coshard
