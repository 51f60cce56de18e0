#pragma once
// Fills an optimizer with a state that is kept elsewhere, in tensors or in files. Rank's thread.
#include <functional>
#include <string>

#include <coshard/dtensor/checkpoint/load.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/styles/module.h>

namespace coshard {

// Fills these tensors from where they are kept; names that are missing or unexpected are errors only
// if it is strict.
using Fill = std::function<Task<LoadReport>(State state, bool strict)>;

// `has`: whether the state has this name. The module has its values already. If it fails, the
// optimizer is as new.
Task<LoadReport> fill_optimizer(Optimizer& optimizer, Module& module, Fill fill,
                                std::function<bool(const std::string&)> has);

}  // namespace coshard
