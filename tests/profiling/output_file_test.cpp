// Files that a command line names to be written.
#include "profiling/output_file.h"

#include <gtest/gtest.h>

#include "tests/support/contains.h"
#include "tests/support/errors.h"
#include "tests/support/json.h"

namespace coshard::testing {
namespace {

std::string why_not_writable(const std::string& path, const std::string& input) {
  return error_text(ErrorKind::BadInput, [&] { require_writable("-o", path, "--text", input); });
}

TEST(OutputFile, ThatCannotBeWrittenIsNamedAndNoneIsCreated) {
  const std::string path = temporary_path("out"), input = temporary_path("in");
  std::ofstream(input) << "text";
  EXPECT_EQ(why_not_writable(path, input), "");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(why_not_writable("/tmp", input), "-o /tmp: is a directory");
  EXPECT_EQ(why_not_writable("/nowhere/out", input),
            "-o /nowhere/out: there is no folder /nowhere");
  EXPECT_EQ(why_not_writable(input, input),
            "-o " + input + ": is the --text, which it would overwrite");
  std::filesystem::remove(input);
}

TEST(OutputFile, IsWrittenOrTheErrorSaysThatItIsNot) {
  const auto write = [](std::ostream& out) { out << std::string(100'000, 'x'); };
  const std::string path = temporary_path("out");
  write_output("-o", path, write);
  EXPECT_EQ(std::filesystem::file_size(path), 100'000U);
  std::filesystem::remove(path);
  EXPECT_EQ(error_text(ErrorKind::DeviceFailed, [&] { write_output("-o", "/dev/full", write); }),
            "/dev/full: could not be written");
  EXPECT_CONTAINS(
      error_text(ErrorKind::BadInput, [&] { write_output("-o", "/nowhere/out", write); }),
      "-o /nowhere/out: No such file");
}

}  // namespace
}  // namespace coshard::testing
