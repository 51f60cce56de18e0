#pragma once
// The page of `coshard trace report -o FILE.html`: a self-contained file. Its source is in
// tools/trace/page/; embed.py joins it at build time.
#include <ostream>
#include <vector>

#include "profiling/json.h"
#include "profiling/overlap/trace_file.h"

namespace coshard::tools {

// `report`: from report_json(). Lane times are integer ns, with delta-encoded begins; names,
// modules and source lines are indices into `texts`. A lane is shaded by its parts (lane_parts.h),
// whose sets of modules are indices into `modules`; it has none where its events are
// kernels that do not touch. `hidden`: ns of a collective.
Json page_data(const std::vector<overlap::RankTrace>& trace, Json report);

void write_page(std::ostream& out, const Json& data);

}  // namespace coshard::tools
