#pragma once
// Files named on a command line: opened with the same error everywhere, and compared.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include <coshard/runtime/error.h>
#include "runtime/parse_number.h"

namespace coshard {

// Error{BadInput}: "--model a.json: No such file or directory; expected …". `option` may be empty,
// `else_expected` begins with what separates it.
inline std::ifstream open_input(const std::string& path, std::string_view option = "",
                                std::string_view else_expected = "") {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (file) file.peek();  // a directory opens, but cannot be read
  CS_REQUIRE(file.is_open() && !file.bad(), option, option.empty() ? "" : " ", shown(path), ": ",
             std::strerror(errno), else_expected);
  file.clear();  // an empty file is at its end
  return file;
}

// Whether both exist and are one file, so that writing to one overwrites the other.
inline bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace coshard
