#pragma once
// `coshard trace merge`: Chrome traces that the processes of one job have written, as one.
#include <ostream>
#include <string>
#include <vector>

namespace coshard::tools {

struct TraceMergeOptions {
  std::vector<std::string> files;
  std::string output;
};

// Times start at 0 with the earliest event. Error{BadInput}: a file that write_chrome_trace has not
// written, or of another clock, or with a rank that an earlier one has; an output that is one of
// them. Error{DeviceFailed}: it cannot be written. Names the file.
void trace_merge(const TraceMergeOptions& options, std::ostream& out);

}  // namespace coshard::tools
