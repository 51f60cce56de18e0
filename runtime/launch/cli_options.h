#pragma once
// Options by CLI11, for run() and the programs of this tree. What is wrong with one is
// Error{BadInput} before anything runs: one line that names the option, its value and what is
// allowed. In main; in no public header.
#include <CLI/CLI.hpp>
#include <chrono>
#include <string>
#include <vector>

#include <coshard/runtime/launch/world.h>
#include "runtime/parse_number.h"

namespace coshard::cli {

// `check` throws for what is not allowed; `allowed` is shown by --help.
template <class Value, class Check>
CLI::Option* add_checked(CLI::App& app, const std::string& name, Value& value,
                         const std::string& help, const Check& check, const std::string& allowed) {
  const auto checked = [check](const std::string& text) {
    check(text);
    return std::string();
  };
  return app.add_option(name, value, help)->capture_default_str()->check(checked, allowed);
}

// A number, or an optional one.
template <class Value, class Number>
CLI::Option* add_number(CLI::App& app, const std::string& name, Value& value, Number lowest,
                        Number highest, const std::string& help) {
  const auto check = [=](const std::string& text) {
    (void)parse_number<Number>(name, text, lowest, highest);
  };
  return add_checked(app, name, value, help, check, str_cat(lowest, " to ", highest));
}

// A time in seconds, with or without a fraction.
void add_seconds(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                 const std::string& help);

// What run() reads, checked as a whole. Of an option that comes twice the last one counts.
void add_world_options(CLI::App& app, WorldOptions& options);

// The names of its options, and of its commands.
std::vector<std::string> option_names(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);

// Gives `app` and its commands --version, and reads argv. False: help or version was asked for, and
// printed. Error{BadInput} for what cannot be read, with the name that may have been meant.
bool parse(CLI::App& app, int argc, char** argv);

}  // namespace coshard::cli
