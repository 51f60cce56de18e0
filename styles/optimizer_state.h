#pragma once
// Fills an optimizer with a state that is kept elsewhere, in tensors or in files. Rank's thread.
#include <functional>
#include <string>
#include <vector>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/styles/module.h>

namespace coshard {

// What is kept of an optimizer.
struct KeptOptimizer {
  std::string path;                                   // in errors
  std::vector<std::string> names;                     // of all that is there
  std::function<Task<LoadReport>(State state)> fill;  // not strict
};

// The module has its values already. What is missing or unexpected, parameters or entries of theirs,
// is an error if it is `strict`; else a parameter that lacks any is as new, and the report has them.
// If it fails, the optimizer is as new.
Task<LoadReport> fill_optimizer(Optimizer& optimizer, Module& module, KeptOptimizer kept,
                                bool strict);

}  // namespace coshard
