#pragma once
// The JSON helpers of reports and traces. Free functions on values; any thread.
#include <string>
#include <string_view>

namespace coshard {

std::string json_quote(
    std::string_view text);  // "text" with quotes, backslashes and control characters escaped
std::string json_number(double value);  // shortest text that reads back equal; null for inf and NaN

}  // namespace coshard
