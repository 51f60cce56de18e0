#pragma once
// An overlap report as JSON: what `coshard trace report --json` prints and the page shows. Times in
// ms; null for unknown figures.
#include <string>

#include "profiling/json.h"
#include "profiling/overlap/overlap_report.h"

namespace coshard::tools {

Json report_json(const overlap::OverlapReport& report, const std::string& file);

}  // namespace coshard::tools
