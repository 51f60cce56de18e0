#pragma once
// Options of this tree's programs, in addition to those of cli_options.h. For main.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/launch/cli_options.h"
#include "runtime/near_miss.h"

namespace coshard::tools {

using cli::add_checked, cli::add_number, cli::parse;

// "{cpu,cuda}", which completion.cpp reads
inline std::string choice_of(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "{" : ",") + word;
  return all + "}";
}

inline CLI::Option* add_word(CLI::App& app, const std::string& name, std::string& value,
                             const std::vector<std::string>& known, const std::string& help) {
  const auto check = [=](const std::string& text) {
    CS_REQUIRE(std::ranges::find(known, text) != known.end(), name, " ", shown(text), ": expected ",
               joined(known));
  };
  return add_checked(app, name, value, help, check, choice_of(known));
}

// --device and --communicator, limited to those that this build has.
inline void add_place(CLI::App& app, std::string& device, std::string& communicator) {
  const auto check_device = [](const std::string& text) {
    const std::vector<std::string> names = device_names();
    CS_REQUIRE(std::ranges::find(names, text) != names.end(), "--device ", shown(text),
               ": expected ", joined(names));
    CS_REQUIRE(has_backend(parse_device_kind(text)), "--device ", text,
               " is not in this build; configure it with `meson setup -D", text, "=enabled`");
  };
  const auto check_communicator = [](const std::string& text) {
    CS_REQUIRE(has_communicator(text), "--communicator ", shown(text), ": this build has ",
               communicator_names());
  };
  add_checked(app, "--device", device,
              joined(device_names()) + "; with several GPUs, rank r uses GPU r modulo their number",
              check_device, choice_of(device_names()));
  add_checked(app, "--communicator", communicator, joined(known_communicators()),
              check_communicator, choice_of(known_communicators()));
}

}  // namespace coshard::tools
