// The options of a world from the command line.
#include <charconv>
#include <cmath>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/error.h"
#include "runtime/launch/world.h"

namespace coshard {
namespace {

template <class T>
T parse_number(std::string_view name, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  CS_REQUIRE(error == std::errc() && end == text.data() + text.size(), name,
             " needs a number, got '", text, "'");
  return value;
}

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
  const double seconds = parse_number<double>(name, text);
  CS_REQUIRE(seconds >= 0 && seconds <= 1e9, name, " needs 0 or more seconds, got ", text);
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

WorldOptions parse_options(int argc, char** argv) {
  WorldOptions options;
  for (int i = 1; i < argc && std::string_view(argv[i]) != "--"; ++i) {
    if (const auto ranks = value_of("--ranks", argc, argv, i)) {
      options.ranks = parse_number<int>("--ranks", *ranks);
      CS_REQUIRE(options.ranks >= 1, "ranks must be at least 1, got ", options.ranks);
    } else if (const auto threads = value_of("--threads", argc, argv, i)) {
      options.threads = parse_number<int>("--threads", *threads);
      CS_REQUIRE(options.threads >= 0, "threads must be at least 0, got ", options.threads);
    } else if (const auto shared = value_of("--rank-threads", argc, argv, i)) {
      options.rank_threads = parse_number<int>("--rank-threads", *shared);
      CS_REQUIRE(options.rank_threads >= 1, "rank_threads must be at least 1, got ",
                 options.rank_threads);
    } else if (const auto timeout = value_of("--timeout", argc, argv, i)) {
      options.timeout = parse_seconds("--timeout", *timeout);
    } else if (const auto grace = value_of("--grace", argc, argv, i)) {
      options.grace = parse_seconds("--grace", *grace);
    } else if (const auto device = value_of("--device", argc, argv, i)) {
      options.device = parse_device_kind(*device);
    } else if (const auto communicator = value_of("--communicator", argc, argv, i)) {
      options.communicator = *communicator;
    } else if (const auto link = value_of("--link", argc, argv, i)) {
      options.link = parse_link(*link);
    } else if (const auto helpers = value_of("--progress-threads", argc, argv, i)) {
      options.progress_threads = parse_number<int>("--progress-threads", *helpers);
    }
  }
  return options;
}

}  // namespace

int run(int argc, char** argv, const Program& program) {
  WorldOptions options;
  try {
    options = parse_options(argc, argv);
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return error.kind() == ErrorKind::BadInput ? 2 : 1;
  }
  return run(std::move(options), program);
}

}  // namespace coshard
