#include "dtensor/checkpoint/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <vector>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

TEST(InputFile, ReadsByPlace) {
  const ScratchFolder folder;
  const InputFile file(folder.write("a", "0123456789"));
  EXPECT_EQ(file.size(), 10U);
  std::string part(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "3456");
  file.read(10, {});
  EXPECT_EQ(message_of([&] { file.read(8, std::as_writable_bytes(std::span(part))); }),
            folder.path("a") + ": ends at byte 10; it was cut while it was read");
}

TEST(InputFile, RefusesWhatIsNoFileAtOnce) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  for (const char* name : {"", "pipe"})
    EXPECT_EQ(message_of([&] { InputFile file(folder.path(name)); }),
              folder.path(name) + ": is no regular file");
  EXPECT_EQ(message_of([&] { InputFile file("/dev/null"); }), "/dev/null: is no regular file");
  EXPECT_EQ(message_of([&] { InputFile file(folder.path("none")); }),
            folder.path("none") + ": cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace coshard::testing
