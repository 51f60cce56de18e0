#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/command_line.h>

namespace coshard::testing {
namespace {

TEST(TakeWorldOptions, LeavesTheOtherArgumentsInTheirOrder) {
  std::vector<std::string> given = {"program", "--ranks", "3",     "--port", "7",
                                    "name",    "--link",  "1GB/s", "--",     "--ranks=5"};
  std::vector<char*> argv;
  for (std::string& argument : given) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(given.size());
  const WorldOptions options = take_world_options(argc, argv.data());
  EXPECT_EQ(options.ranks, 3);
  EXPECT_TRUE(options.link);
  const std::vector<std::string> left(argv.begin(), argv.begin() + argc);
  EXPECT_EQ(left, (std::vector<std::string>{"program", "--port", "7", "name", "--", "--ranks=5"}));
  EXPECT_EQ(argv[static_cast<std::size_t>(argc)], nullptr);
}

}  // namespace
}  // namespace coshard::testing
