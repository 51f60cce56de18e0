#pragma once
// `coshard trace report`: how much of the communication in a Chrome trace was hidden by compute.
#include <ostream>
#include <string>

namespace coshard::tools {

struct TraceReportOptions {
  std::string file, baseline;  // the latter may be empty
  std::string page;            // may be empty; *.svg: a picture of one step instead
  bool json = false;
};

// Prints the report, and writes the page if requested. Error{BadInput}: a trace cannot be read;
// Error{DeviceFailed}: a page cannot be written; both name the file.
void trace_report(const TraceReportOptions& options, std::ostream& out);

}  // namespace coshard::tools
