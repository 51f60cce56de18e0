#pragma once
// The page of `coshard trace report -o FILE.html`: one file that needs neither network nor other
// files. Its text is in tools/trace/page/; embed.py makes one of it at build time.
#include <ostream>
#include <vector>

#include "profiling/json.h"
#include "profiling/overlap/trace_file.h"

namespace coshard::tools {

// `report` is that of report_json(). Times of lanes are whole ns, begins as the difference to the
// one before; names, modules and lines of the program are indices into `texts`.
Json page_data(const std::vector<overlap::RankTrace>& trace, Json report);

void write_page(std::ostream& out, const Json& data);

}  // namespace coshard::tools
