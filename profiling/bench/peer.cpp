#include "profiling/bench/peer.h"

#include <algorithm>
#include <optional>

#include <coshard/runtime/error.h>
#include "profiling/child_process.h"
#include "profiling/json.h"

namespace coshard::bench {
namespace {

void add_numbers(const Json& value, const std::string& name, std::map<std::string, double>& found) {
  if (value.is_number()) found[name] = value.get<double>();
  if (!value.is_object()) return;
  for (const auto& [key, inner] : value.items())
    add_numbers(inner, name.empty() ? key : name + "." + key, found);
}

}  // namespace

std::map<std::string, double> numbers_of(const std::string& json) {
  const std::size_t begin = std::min(json.find('{'), json.size());
  const Json value = Json::parse(json.substr(begin, json.rfind('}') + 1 - begin), nullptr, false);
  std::map<std::string, double> found;
  if (value.is_object()) add_numbers(value, "", found);
  return found;
}

std::map<std::string, double> run_peer(const std::string& script,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"python3", script};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const std::optional<std::string> text = output_of(command);
  if (!text)
    fail(ErrorKind::Unsupported, str_cat("peer: python3 ", script, " ", arguments[0], " failed"));
  const std::map<std::string, double> found = numbers_of(*text);
  if (found.empty())
    fail(ErrorKind::Unsupported,
         str_cat("peer: ", script, " printed no JSON object with a number"));
  return found;
}

}  // namespace coshard::bench
