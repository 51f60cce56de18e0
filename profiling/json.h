#pragma once
// JSON of reports and traces, by nlohmann_json. Keys keep their order. In no public header.
#include <nlohmann/json.hpp>
#include <string>

namespace coshard {

using Json = nlohmann::ordered_json;

// Numbers read back equal, inf and nan are null; bytes that are no UTF-8 (of a path) become U+FFFD.
// indent -1: one line.
inline std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace coshard
