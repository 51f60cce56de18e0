#include "runtime/launch/cli_options.h"

#include <gtest/gtest.h>

namespace coshard::cli {
namespace {

using Words = std::vector<std::string>;

std::string refusal(CLI::App& app, Words words) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  try {
    parse(app, static_cast<int>(argv.size()), argv.data());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "accepted";
}

TEST(CliOptions, ANumberIsCheckedBeforeItIsStored) {
  CLI::App app("", "tool");
  int count = 3;
  add_number(app, "--count", count, 1, 8, "how many");
  EXPECT_EQ(option_names(app), (Words{"--help", "--count"}));
  EXPECT_EQ(refusal(app, {"--count", "9"}), "--count 9: must be a number from 1 to 8");
  EXPECT_EQ(refusal(app, {"--count="}), "--count needs a value");
  EXPECT_EQ(count, 3);
}

TEST(CliOptions, AMistypedOptionOrCommandIsNamedWithWhatWasMeant) {
  CLI::App app("", "tool");
  int count = 3;
  add_number(*app.add_subcommand("train"), "--count", count, 1, 8, "how many");
  app.add_subcommand("bench");
  app.require_subcommand(1);
  EXPECT_EQ(command_names(app), (Words{"train", "bench"}));
  EXPECT_EQ(refusal(app, {"trian"}), "unknown command 'trian' of tool; did you mean train?");
  EXPECT_EQ(refusal(app, {"zzz"}), "unknown command 'zzz' of tool; expected train or bench");
  EXPECT_EQ(refusal(app, {}), "tool needs a command: train or bench");
  EXPECT_EQ(refusal(app, {"train", "--cuont", "4"}),
            "unknown option --cuont of train; did you mean --count?");
}

}  // namespace
}  // namespace coshard::cli
