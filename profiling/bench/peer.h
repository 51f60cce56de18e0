#pragma once
// Runs PyTorch on the same work, as a child process. Blocks the calling thread.
#include <map>
#include <string>
#include <vector>

namespace coshard::bench {

// Numbers of the JSON object in a text, nested keys joined by dots: {"a": {"b": 2}} gives "a.b".
// Other values are left out; empty if the text holds no object.
std::map<std::string, double> numbers_of(const std::string& json);

// `python3 script arguments...`, read by numbers_of. Error{Unsupported} names the script when it
// fails or prints no number.
std::map<std::string, double> run_peer(const std::string& script,
                                       const std::vector<std::string>& arguments);

}  // namespace coshard::bench
