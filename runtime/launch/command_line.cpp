#include <coshard/runtime/launch/command_line.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/launch/rank_world.h"
#include "runtime/parse_number.h"

namespace coshard {
namespace {

// The value of `name` when argv[i] is "name=value" or "name" with the value in the next argument.
std::optional<std::string_view> value_of(std::string_view name, int argc, char** argv, int& i) {
  const std::string_view argument = argv[i];
  if (!argument.starts_with(name)) return std::nullopt;
  if (argument.size() > name.size()) {
    if (argument[name.size()] != '=') return std::nullopt;
    return argument.substr(name.size() + 1);
  }
  CS_REQUIRE(i + 1 < argc, name, " needs a value");
  return argv[++i];
}

std::chrono::milliseconds parse_seconds(std::string_view name, std::string_view text) {
  return std::chrono::milliseconds(std::llround(parse_number<double>(name, text, 0, 1e9) * 1000));
}

// Takes argv[i], and its value behind it, when it is an option of a world.
bool take(WorldOptions& options, int argc, char** argv, int& i) {
  const auto number = [&](std::string_view name, int& field, int lowest, int highest) {
    const auto text = value_of(name, argc, argv, i);
    if (text) field = parse_number(name, *text, lowest, highest);
    return text.has_value();
  };
  if (number("--ranks", options.ranks, 1, kMostRanks) ||
      number("--threads", options.threads, 0, kMostThreads) ||
      number("--rank-threads", options.rank_threads, 1, kMostRanks) ||
      number("--progress-threads", options.progress_threads, 0, kMostProgressThreads))
    return true;
  if (const auto timeout = value_of("--timeout", argc, argv, i)) {
    options.timeout = parse_seconds("--timeout", *timeout);
  } else if (const auto grace = value_of("--grace", argc, argv, i)) {
    options.grace = parse_seconds("--grace", *grace);
  } else if (const auto device = value_of("--device", argc, argv, i)) {
    options.device = parse_device_kind(*device);
  } else if (const auto communicator = value_of("--communicator", argc, argv, i)) {
    options.communicator = *communicator;
  } else if (const auto link = value_of("--link", argc, argv, i)) {
    options.link = parse_link(*link);
  } else {
    return false;
  }
  return true;
}

}  // namespace

WorldOptions take_world_options(int& argc, char** argv) {
  WorldOptions options;
  int left = 1, i = 1;
  for (; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    char* const argument = argv[i];
    if (!take(options, argc, argv, i)) argv[left++] = argument;
  }
  while (i < argc) argv[left++] = argv[i++];
  if (left < argc) argv[left] = nullptr;
  argc = std::min(argc, left);
  (void)settled(options);
  return options;
}

int run(int argc, char** argv, const Program& program) {
  std::vector<char*> arguments(argv, argv + argc);
  WorldOptions options;
  try {
    options = take_world_options(argc, arguments.data());
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 2;
  }
  return run(std::move(options), program);
}

}  // namespace coshard
