#pragma once
// From the JSON of a case to modules of the library and to plans. Rank's thread.
#include <coshard/styles/parallelize.h>
#include "tools/conform/program.h"

namespace coshard::conform {

// The module that `spec` describes, its parameters undefined by the case yet.
std::shared_ptr<Module> make_module(const Json& spec, World& world);

// A style, or styles by path. Error{BadInput}: a style or an argument that is not known.
ParallelPlan plan_of(const Json& plan);

}  // namespace coshard::conform
