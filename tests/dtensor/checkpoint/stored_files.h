#pragma once
// Files for tests of checkpoints, in a folder that goes with the test, or with the job of several
// processes, which all have the same one.
#include <stdlib.h>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <coshard/runtime/error.h>
#include "tests/support/contains.h"

namespace coshard::testing {

class ScratchFolder {
 public:
  ScratchFolder() {
    if (is_shared()) {
      static int made = 0;  // all processes run the same tests
      root_ = std::filesystem::temp_directory_path() / str_cat("shared-", made++);
      std::filesystem::create_directories(root_);
      return;
    }
    std::string name = (std::filesystem::temp_directory_path() / "coshard-test-XXXXXX").string();
    CS_REQUIRE(::mkdtemp(name.data()) != nullptr, "no folder ", name);
    root_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!is_shared()) std::filesystem::remove_all(root_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path(std::string_view name) const { return (root_ / name).string(); }
  std::string write(std::string_view name, std::string_view bytes) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream out(path(name), std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }
  static bool is_shared() {
    const char* const worlds = std::getenv("COSHARD_TEST_WORLDS");
    return worlds != nullptr && std::string_view(worlds) == "mpi";
  }

 private:
  std::filesystem::path root_;
};

// A safetensors file of this header and these bytes.
inline std::string stored_file(std::string_view header, std::string_view data) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

// The message of the Error that it throws; "" if none.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace coshard::testing
