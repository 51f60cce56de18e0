#pragma once
// An overlap report as text: a line per rank, per kind of collective and per module.
#include <ostream>
#include <string>

#include "profiling/overlap/overlap_report.h"

namespace coshard::tools {

void print_report_table(std::ostream& out, const overlap::OverlapReport& report,
                        const std::string& file);

}  // namespace coshard::tools
