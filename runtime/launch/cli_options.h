#pragma once
// Command-line options (CLI11) for run() and the programs of this tree. An invalid option is
// Error{BadInput} before anything runs: one line that names the option, its value and what is
// allowed. For main(); not included by public headers.
#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <vector>

#include <coshard/runtime/launch/world.h>
#include "runtime/parse_number.h"

namespace coshard::cli {

// `check` throws for invalid values; `allowed` is shown by --help.
template <class Value, class Check>
CLI::Option* add_checked(CLI::App& app, const std::string& name, Value& value,
                         const std::string& help, const Check& check, const std::string& allowed) {
  const auto checked = [check](const std::string& text) {
    check(text);
    return std::string();
  };
  return app.add_option(name, value, help)->capture_default_str()->check(checked, allowed);
}

// A number, or an optional number.
template <class Value, class Number>
CLI::Option* add_number(CLI::App& app, const std::string& name, Value& value, Number lowest,
                        Number highest, const std::string& help) {
  const auto check = [=](const std::string& text) {
    (void)parse_number<Number>(name, text, lowest, highest);
  };
  return add_checked(app, name, value, help, check, str_cat(lowest, " to ", highest));
}

// An option of several texts, each taken as it is: in a vector, CLI11 would read "[a,b]" as a list.
CLI::Option* add_texts(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                       const std::string& help);

// A time in seconds, with or without a fraction.
void add_seconds(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                 const std::string& help);

// The options of run(), validated together. If an option is repeated, the last one counts.
void add_world_options(CLI::App& app, WorldOptions& options);

// The names of the options and commands of `app`.
std::vector<std::string> option_names(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);

// Adds --version to `app` and its commands, and parses argv. False: help or version was requested
// and printed. Error{BadInput} for invalid arguments, suggesting the name that may have been meant.
bool parse(CLI::App& app, int argc, char** argv);

}  // namespace coshard::cli
