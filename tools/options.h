#pragma once
// Options by CLI11, for the programs of this tree. What is wrong with one is Error{BadInput} before
// anything runs: one line that names the option, its value and what is allowed. In main.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/parse_number.h"

namespace coshard::tools {

inline std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i)
    all += (i == 0 ? "" : i + 1 < words.size() ? ", " : " and ") + words[i];
  return all;
}

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
void add_number(CLI::App& app, const std::string& name, Value& value, Number lowest, Number highest,
                const std::string& help) {
  const auto check = [=](const std::string& text) {
    (void)parse_number<Number>(name, text, lowest, highest);
  };
  add_checked(app, name, value, help, check, cat(lowest, " to ", highest));
}

inline void add_word(CLI::App& app, const std::string& name, std::string& value,
                     const std::vector<std::string>& known, const std::string& help) {
  const auto check = [=](const std::string& text) {
    CS_REQUIRE(std::ranges::find(known, text) != known.end(), name, " ", shown(text),
               ": known are ", joined(known));
  };
  add_checked(app, name, value, help, check, "");
}

// --device and --communicator, of those that this build has.
inline void add_place(CLI::App& app, std::string& device, std::string& communicator) {
  const auto check_device = [](const std::string& text) {
    CS_REQUIRE(text == "cpu" || text == "cuda", "--device ", shown(text),
               ": known are cpu and cuda");
    CS_REQUIRE(has_backend(parse_device_kind(text)), "--device ", text,
               ": this build has no such back end (meson setup -D", text, "=enabled)");
  };
  const auto check_communicator = [](const std::string& text) {
    CS_REQUIRE(has_communicator(text), "--communicator ", shown(text), ": this build has ",
               communicator_names());
  };
  add_checked(app, "--device", device,
              "cpu or cuda; of several GPUs rank r gets r modulo their count", check_device, "");
  add_checked(app, "--communicator", communicator, "local, or nccl between GPUs",
              check_communicator, "");
}

// The innermost command that was named.
inline const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : innermost(*named.front());
}

inline void require_command(const CLI::App& app) {
  if (app.get_require_subcommand_min() == 0) return;
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(command->get_name());
  const std::vector<std::string> words = app.remaining();
  CS_REQUIRE(!words.empty(), app.get_name(), " needs a command: ", joined(known));
  fail(ErrorKind::BadInput, cat("'", words.front(), "' is no command of ", app.get_name(),
                                ", which has ", joined(known)));
}

// False: help was asked for, and printed.
inline bool parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) != 0;
    require_command(innermost(app));
    const std::string text = error.what();
    fail(ErrorKind::BadInput, text.substr(0, text.find('\n')));
  }
}

}  // namespace coshard::tools
