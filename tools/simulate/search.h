#pragma once
// The meshes, plans and recompute policies of a number of GPUs, from the fastest that fits.
#include <ostream>

#include "tools/simulate/simulate.h"

namespace coshard::tools {

// Prints the ten fastest that fit in memory, and how many were tried. Error{BadInput}: a mesh beside
// the number of GPUs, or neither; a batch that no mesh can divide.
void search_meshes(const SimulateOptions& options, std::ostream& out);

}  // namespace coshard::tools
