#pragma once
// `coshard trace report`: how much of the communication in a Chrome trace ran under compute.
#include <ostream>
#include <string>

namespace coshard::tools {

struct TraceReportOptions {
  std::string file, baseline, page;  // the latter two may be empty
  bool json = false;
};

// Prints the report, and writes the page where one is asked for. Error{BadInput} for a trace that
// cannot be read, Error{DeviceFailed} for a page that cannot be written; both name the file.
void trace_report(const TraceReportOptions& options, std::ostream& out);

}  // namespace coshard::tools
