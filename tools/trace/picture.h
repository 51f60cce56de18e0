#pragma once
// The picture of `coshard trace report -o FILE.svg`: one training step, with each rank's
// computation and the collectives in flight.
#include <ostream>
#include <vector>

#include "profiling/overlap/trace_file.h"

namespace coshard::tools {

// Draws the last range whose name begins with "step", or the whole trace if there is none, for the
// first four ranks. With a baseline (null: none), its step is drawn first, on the same scale.
void write_picture(std::ostream& out, const std::vector<overlap::RankTrace>& trace,
                   const std::vector<overlap::RankTrace>* baseline);

}  // namespace coshard::tools
