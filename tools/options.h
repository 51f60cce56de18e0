#pragma once
// Options of the programs of this tree, beside those of cli_options.h. In main.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/launch/cli_options.h"

namespace coshard::tools {

using cli::add_checked, cli::add_number, cli::joined, cli::parse;

inline CLI::Option* add_word(CLI::App& app, const std::string& name, std::string& value,
                             const std::vector<std::string>& known, const std::string& help) {
  const auto check = [=](const std::string& text) {
    CS_REQUIRE(std::ranges::find(known, text) != known.end(), name, " ", shown(text), ": expected ",
               joined(known));
  };
  std::string all;
  for (const std::string& word : known) all += (all.empty() ? "{" : ",") + word;
  return add_checked(app, name, value, help, check, all + "}");
}

// --device and --communicator, of those that this build has.
inline void add_place(CLI::App& app, std::string& device, std::string& communicator) {
  const auto check_device = [](const std::string& text) {
    CS_REQUIRE(text == "cpu" || text == "cuda", "--device ", shown(text), ": expected cpu or cuda");
    CS_REQUIRE(has_backend(parse_device_kind(text)), "--device ", text,
               " is not in this build; configure it with `meson setup -D", text, "=enabled`");
  };
  const auto check_communicator = [](const std::string& text) {
    CS_REQUIRE(has_communicator(text), "--communicator ", shown(text), ": this build has ",
               communicator_names());
  };
  add_checked(app, "--device", device,
              "cpu or cuda; of several GPUs rank r gets r modulo their count", check_device,
              "{cpu,cuda}");
  add_checked(app, "--communicator", communicator, "local, or nccl between GPUs",
              check_communicator, "{local,nccl}");
}

}  // namespace coshard::tools
