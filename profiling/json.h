#pragma once
// JSON of reports and traces, with nlohmann_json. Keys keep their order. Not for public headers.
#include <nlohmann/json.hpp>
#include <string>

namespace coshard {

using Json = nlohmann::ordered_json;

// Numbers round-trip, inf and nan are null; invalid UTF-8 becomes U+FFFD. indent -1: one line.
inline std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace coshard
