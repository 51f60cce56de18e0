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

TEST(CliOptions, AnOptionThatMayBeEmptyTakesAnEmptyValueInAllSpellings) {
  for (const Words& words : {Words{"--shape=", "--count", "2"}, Words{"--shape", "", "--count=2"},
                             Words{"--count", "2", "--shape"}}) {
    CLI::App app("", "tool");
    std::string shape = "8";
    int count = 3;
    app.add_option("--shape", shape)->expected(0, 1);
    add_number(app, "--count", count, 1, 8, "how many");
    EXPECT_EQ(refusal(app, words), "accepted");
    EXPECT_EQ(shape, "");
    EXPECT_EQ(count, 2);
  }
  CLI::App app("", "tool");
  std::string shape;
  bool json = false;
  app.add_option("--shape", shape)->expected(0, 1);
  app.add_flag("--json", json);
  EXPECT_EQ(refusal(app, {"--shape=", "8"}), "tool takes no argument '8'");
  EXPECT_EQ(refusal(app, {"--json="}), "--json needs a value");
}

TEST(CliOptions, OnlyOneValueThatIsNotEmptyIsAccepted) {
  const auto refused = [](const Words& words) {
    CLI::App app("", "tool");
    std::string file, module;
    bool json = false;
    int count = 3;
    app.add_option("-o,--output", file, "where to");
    app.add_option("--module", module, "which")->expected(0, 1);
    app.add_flag("--json", json, "as JSON");
    add_number(app, "--count", count, 1, 8, "how many");
    return refusal(app, words);
  };
  EXPECT_EQ(refused({"-o", ""}), "--output needs a value");
  EXPECT_EQ(refused({"-o"}), "--output needs a value");
  EXPECT_EQ(refused({"--count", "4", "--count", "5"}), "--count is given more than once");
  EXPECT_EQ(refused({"--json=x"}), "--json x: takes no value");
  EXPECT_EQ(refused({"--module", "--json", "-o", "a"}), "accepted");
}

TEST(CliOptions, TextsAreTakenAsTheyAre) {
  const Words texts{"[INST] a, b [/INST]", "[]", "{}", "x,y"};
  for (const bool repeats : {false, true}) {
    CLI::App app("", "tool");
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    std::string folder;
    Words got;
    app.add_option("FOLDER", folder)->required();
    add_texts(app, "--prompt", got, "several");
    Words words;
    for (const std::string& text : texts) {
      if (repeats || words.empty()) words.push_back("--prompt");
      words.push_back(text);
    }
    words.push_back("folder");
    EXPECT_EQ(refusal(app, words), "accepted");
    EXPECT_EQ(got, texts);
    EXPECT_EQ(folder, "folder");
    EXPECT_EQ(refusal(app, {"f", "--prompt", "a", "--prompt", ""}), "--prompt needs a value");
    EXPECT_EQ(refusal(app, {"f", "--prompt"}), "--prompt needs a value");
  }
}

TEST(CliOptions, AValueOfAnotherTypeIsNamed) {
  CLI::App app("", "tool");
  int count = 3;
  app.add_subcommand("run")->add_option("--count", count);
  EXPECT_EQ(refusal(app, {"run", "--count", "2.5"}), "--count 2.5: expected INT");
}

TEST(CliOptions, ATimeThatIsShorterThanAMillisecondIsNotTheZeroThatMeansNone) {
  std::chrono::milliseconds timeout{5};
  for (const auto& [text, ms] : {std::pair{"1e-9", 1}, {"0.0004", 1}, {"0", 0}, {"1.5", 1500}}) {
    CLI::App app("", "tool");
    add_seconds(app, "--timeout", timeout, "deadline");
    EXPECT_EQ(refusal(app, {"--timeout", text}), "accepted");
    EXPECT_EQ(timeout.count(), ms) << text;
  }
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
