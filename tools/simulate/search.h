#pragma once
// Searches the meshes, plans and recompute policies for a number of GPUs, fastest first.
#include <ostream>

#include "tools/simulate/simulate.h"

namespace coshard::tools {

// Prints the ten fastest that fit in memory, and how many were tried. Error{BadInput}: both a mesh
// and a number of GPUs, or neither; a batch that no mesh divides.
void search_meshes(const SimulateOptions& options, std::ostream& out);

}  // namespace coshard::tools
