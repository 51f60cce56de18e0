#pragma once
// load(module, …) from files that may be open already. Rank's thread.
#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/styles/module.h>
#include "dtensor/checkpoint/training_files.h"

namespace coshard {

// Passes over what the module's parts have no use for (Module::unused_names), and materializes the
// buffers that do not persist, which no file has.
Task<LoadReport> load_module(Module& module, FilesToLoad from, LoadOptions options);

}  // namespace coshard
