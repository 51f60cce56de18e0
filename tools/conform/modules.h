#pragma once
// The steps about modules: module, parallelize, call, loss_parallel, optimizer, optimizer_step,
// zero_grad, clip_grad_norm.
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/styles/module.h>
#include "tools/conform/program.h"

namespace coshard::conform {

struct Modules {
  std::map<std::string, std::shared_ptr<Module>> modules;
  std::map<std::string, std::unique_ptr<Optimizer>> optimizers;
};

// Runs the step if it is one of these; false otherwise.
Task<bool> run_module_step(Program& program, const Json& step);
// The parameter "module.path.name"; undefined when there is none.
Tensor find_parameter(const Program& program, const std::string& name);

}  // namespace coshard::conform
