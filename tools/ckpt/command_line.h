#pragma once
// The options of `coshard ckpt`. In main.
#include <functional>

#include "runtime/launch/cli_options.h"

namespace coshard::tools {

// Adds the command; if it is given, `chosen` runs it.
void add_ckpt(CLI::App& app, std::function<int()>& chosen);

}  // namespace coshard::tools
