#include "runtime/launch/cli_options.h"

#include <algorithm>
#include <cmath>

#include <coshard/runtime/launch/command_line.h>
#include <coshard/version.h>
#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/launch/rank_world.h"
#include "runtime/near_miss.h"

namespace coshard::cli {
namespace {

// The innermost command that was named.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : innermost(*named.front());
}

void add_version(CLI::App& app) {
  app.set_version_flag("--version", "coshard " COSHARD_VERSION, "print the version and exit");
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    add_version(*command);
}

[[noreturn]] void fail_on_option(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::string meant = near_miss(name, option_names(app));
  fail(ErrorKind::BadInput,
       str_cat("unknown option ", name, " of ", app.get_name(), "; ",
               meant.empty() ? "--help lists its options" : "did you mean " + meant + "?"));
}

// Rejects leftover arguments, and a missing or unknown command.
void require_known(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining(), commands = command_names(app);
  for (const std::string& word : words)
    if (word.size() > 1 && word.front() == '-' && word != "--") fail_on_option(app, word);
  if (commands.empty()) {
    CS_REQUIRE(words.empty(), app.get_name(), " takes no argument '", words.front(), "'");
    return;
  }
  CS_REQUIRE(!words.empty(), app.get_name(), " needs a command: ", joined(commands));
  const std::string meant = near_miss(words.front(), commands);
  fail(ErrorKind::BadInput,
       str_cat("unknown command '", words.front(), "' of ", app.get_name(),
               meant.empty() ? "; expected " + joined(commands) : "; did you mean " + meant + "?"));
}

bool needs_value(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option(name);
  return option->get_expected_min() > 0 || option->get_expected_max() == 0;  // or is a flag
}

// CLI11 would take the next word as the value of "--ranks="; "--shape=" becomes "--shape" and "".
void split_empty_values(const CLI::App& app, std::vector<std::string>& words) {
  for (const std::string& name : option_names(app)) {
    const auto found = std::ranges::find(words, name + "=");
    if (found == words.end()) continue;
    CS_REQUIRE(!needs_value(app, name), name, " needs a value");
    *found = name;
    words.insert(found + 1, "");
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    split_empty_values(*command, words);
}

// CLI11 accepts an empty value, which reads as if the option had been left out.
void require_no_empty_value(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    CS_REQUIRE(option->get_expected_min() == 0 || std::ranges::find(values, "") == values.end(),
               option->get_name(), " needs a value");
  }
  for (const CLI::App* command : app.get_subcommands()) require_no_empty_value(*command);
}

// CLI11 tells "Could not convert: --json = x".
[[noreturn]] void fail_on_value(const CLI::App& app, const std::string& text) {
  constexpr std::string_view kBegin = "Could not convert: ", kEquals = " = ";
  const std::size_t equals = text.find(kEquals);
  if (!text.starts_with(kBegin) || equals == std::string::npos) fail(ErrorKind::BadInput, text);
  const std::string name = text.substr(kBegin.size(), equals - kBegin.size());
  const CLI::Option* option = app.get_option_no_throw(name);
  const bool takes_one = option != nullptr && option->get_expected_max() > 0;
  fail(ErrorKind::BadInput,
       str_cat(name, ' ', text.substr(equals + kEquals.size()), ": ",
               takes_one ? "expected " + option->get_type_name() : "takes no value"));
}

}  // namespace

CLI::Option* add_texts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                       const std::string& help) {
  const auto keep = [&values](const CLI::results_t& given) {
    values = given;
    return true;
  };
  constexpr int kMost = 1'000'000;
  return app.add_option(name, CLI::callback_t(keep), help)
      ->type_name("TEXT ...")
      ->expected(1, kMost)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void add_seconds(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                 const std::string& help) {
  const auto read = [name, &value](const std::string& text) {
    const double seconds = parse_number<double>(name, text, 0, 1e9);
    const long long rounded = std::llround(seconds * 1000);
    value = std::chrono::milliseconds(seconds > 0 ? std::max(rounded, 1LL) : 0);  // 0: no limit
  };
  app.add_option_function<std::string>(name, read, help)
      ->type_name("SECONDS")
      ->default_str(str_cat(std::chrono::duration<double>(value).count()));
}

void add_world_options(CLI::App& app, WorldOptions& o) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto read_device = [&o](const std::string& text) { o.device = parse_device_kind(text); };
  const auto read_link = [&o](const std::string& text) { o.link = parse_link(text); };
  add_number(app, "--ranks", o.ranks, 1, kMostRanks, "number of ranks, in all processes together")
      ->default_str("one per process, or 2");
  add_number(app, "--threads", o.threads, 0, kMostThreads, "threads per rank; 0: cores / ranks");
  add_number(app, "--rank-threads", o.rank_threads, 1, kMostRanks,
             "threads that the ranks share; default: one each");
  add_number(app, "--progress-threads", o.progress_threads, 0, kMostProgressThreads,
             "threads that move data while ranks compute");
  add_seconds(app, "--timeout", o.timeout, "deadline of every wait for a peer; 0: none");
  add_seconds(app, "--grace", o.grace, "how long ranks may take to end after a failure");
  app.add_option_function<std::string>("--device", read_device, joined(device_names()))
      ->default_str("cpu");
  app.add_option("--communicator", o.communicator, joined(known_communicators()))
      ->capture_default_str();
  app.add_option_function<std::string>("--link", read_link,
                                       "emulate a link of this latency and bandwidth: 20us,1GB/s");
  app.final_callback([&o] { o.ranks = settled(o).ranks; });
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

bool parse(CLI::App& app, int argc, char** argv) {
  if (!app.get_allow_extras()) add_version(app);
  std::vector<std::string> words(argv, argv + argc);
  split_empty_values(app, words);
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
    require_no_empty_value(app);
    return true;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();
    const bool repeated = text.find(": At Most") != std::string::npos;
    fail(ErrorKind::BadInput, text.substr(0, text.find(':')) +
                                  (repeated ? " is given more than once" : " needs a value"));
  } catch (const CLI::ConversionError& error) {  // other values are checked before
    fail_on_value(innermost(app), error.what());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) != 0;
    require_known(innermost(app));
    const std::string text = error.what();
    fail(ErrorKind::BadInput, text.substr(0, text.find('\n')));
  }
}

}  // namespace coshard::cli
