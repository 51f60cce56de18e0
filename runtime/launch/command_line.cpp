#include <coshard/runtime/launch/command_line.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string_view>
#include <utility>

#include "runtime/control/failure_record.h"
#include "runtime/launch/cli_options.h"
#include "runtime/printable.h"

namespace coshard {
namespace {

// The number of arguments before "--".
int before_dashes(int argc, char** argv) {
  const auto dashes = [](const char* word) { return std::string_view(word) == "--"; };
  return static_cast<int>(std::find_if(argv, argv + argc, dashes) - argv);
}

}  // namespace

WorldOptions take_world_options(int& argc, char** argv) {
  WorldOptions options;
  CLI::App app("", "program");
  app.set_help_flag();  // left to the program itself
  app.allow_extras();
  cli::add_world_options(app, options);
  const int end = before_dashes(argc, argv);
  reporting_failure([&] { return cli::parse(app, end, argv); });
  int left = 1, i = 1;
  for (const std::string& word : app.remaining()) {
    while (argv[i] != word) ++i;
    argv[left++] = argv[i++];
  }
  for (i = end; i < argc; ++i) argv[left++] = argv[i];
  if (left < argc) argv[left] = nullptr;
  argc = std::min(argc, left);
  return options;
}

int run(int argc, char** argv, const Program& program) {
  WorldOptions options;
  try {
    const std::filesystem::path name = argc > 0 ? argv[0] : "program";
    CLI::App app("", name.filename().string());
    app.footer("Arguments after -- are left to the program.");
    cli::add_world_options(app, options);
    const auto parsed = [&] { return cli::parse(app, before_dashes(argc, argv), argv); };
    if (!reporting_failure(parsed)) return 0;
  } catch (const Error& error) {
    std::cerr << str_cat("error: ", printable(error.what()), '\n') << std::flush;
    return 2;
  }
  return run(std::move(options), program);
}

}  // namespace coshard
