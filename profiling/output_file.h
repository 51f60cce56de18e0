#pragma once
// Files that a command line names to be written: with the same errors everywhere.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "profiling/input_file.h"

namespace coshard {

// Error{BadInput}: "--json a/b.json: there is no folder a"; `input` is that file, of the option
// `input_option`. For programs that compute for long before they write. Creates nothing.
inline void require_writable(std::string_view option, const std::string& path,
                             std::string_view input_option, const std::string& input) {
  std::error_code ignored;
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  CS_REQUIRE(!std::filesystem::is_directory(path, ignored), option, " ", path, ": is a directory");
  CS_REQUIRE(!is_same_file(path, input), option, " ", path, ": is the ", input_option,
             ", which it would overwrite");
  CS_REQUIRE(std::filesystem::is_directory(folder, ignored), option, " ", path,
             ": there is no folder ", folder);
  const std::string& written = std::filesystem::exists(path, ignored) ? path : folder;
  CS_REQUIRE(::access(written.c_str(), W_OK) == 0, option, " ", path, ": cannot be written");
}

// Calls write(std::ostream&). Error{BadInput}: it cannot be opened; Error{DeviceFailed}: "a.json:
// could not be written".
template <class Write>
void write_output(std::string_view option, const std::string& path, const Write& write) {
  std::ofstream file(path, std::ios::binary);
  if (!file) fail(ErrorKind::BadInput, str_cat(option, " ", path, ": ", std::strerror(errno)));
  write(file);
  file.close();
  if (!file) fail(ErrorKind::DeviceFailed, str_cat(path, ": could not be written"));
}

}  // namespace coshard
