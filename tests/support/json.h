#pragma once
// Reads JSON in tests: python3 decides whether a text is valid JSON, and checks assertions on it.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace coshard::testing {

// A path in the temporary folder that no other test uses; it does not exist yet.
inline std::string temporary_path(const std::string& name) {
  static int number = 0;
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder ? folder : "/tmp") + "/coshard-" + std::to_string(::getpid()) + "-" +
         std::to_string(number++) + "-" + name;
}

// Runs python with the parsed file as `d`; true when no assertion of `checks` fails. Python names
// the failed one on stderr.
inline bool json_file_holds(const std::string& path, const std::string& checks) {
  const std::string script = temporary_path("check.py");
  std::ofstream(script) << "import json\nd = json.load(open('" << path << "'))\n" << checks << "\n";
  const int status = std::system(("python3 " + script).c_str());
  std::remove(script.c_str());
  return status == 0;
}

inline bool json_holds(const std::string& text, const std::string& checks) {
  const std::string path = temporary_path("text.json");
  std::ofstream(path) << text;
  const bool holds = json_file_holds(path, checks);
  std::remove(path.c_str());
  return holds;
}

}  // namespace coshard::testing
