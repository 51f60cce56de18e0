#pragma once
// The picture of `coshard trace report -o FILE.svg`: one training step, what each rank computes and
// what is in flight meanwhile.
#include <ostream>
#include <vector>

#include "profiling/overlap/trace_file.h"

namespace coshard::tools {

// Draws the last range whose name begins with "step", or all of a trace without one; of the first
// four ranks. With a baseline (null: none) its step comes first, on the same scale.
void write_picture(std::ostream& out, const std::vector<overlap::RankTrace>& trace,
                   const std::vector<overlap::RankTrace>* baseline);

}  // namespace coshard::tools
