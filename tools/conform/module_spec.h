#pragma once
// Creates the library's modules and plans from the JSON of a case. Rank's thread.
#include <coshard/styles/parallelize.h>
#include "tools/conform/program.h"

namespace coshard::conform {

// The module that `spec` describes; the case's parameters are not set yet.
std::shared_ptr<Module> make_module(const Json& spec, World& world);

// A style, or styles by path. Error{BadInput}: an unknown style or argument.
ParallelPlan plan_of(const Json& plan);

}  // namespace coshard::conform
