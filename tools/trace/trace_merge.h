#pragma once
// `coshard trace merge`: merges the Chrome traces of one job's processes.
#include <ostream>
#include <string>
#include <vector>

namespace coshard::tools {

struct TraceMergeOptions {
  std::vector<std::string> files;
  std::string output;
};

// Times start at 0 with the earliest event. Error{BadInput}: a file that is not from
// write_chrome_trace, has another clock, or repeats a rank of an earlier file; an output that is
// one of the files. Error{DeviceFailed}: it cannot be written. Both name the file.
void trace_merge(const TraceMergeOptions& options, std::ostream& out);

}  // namespace coshard::tools
