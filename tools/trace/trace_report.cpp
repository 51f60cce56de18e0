#include "tools/trace/trace_report.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <coshard/runtime/error.h>
#include "profiling/overlap/overlap_report.h"
#include "tools/trace/page.h"
#include "tools/trace/report_json.h"
#include "tools/trace/report_table.h"

namespace coshard::tools {
namespace {

void require_other_file(const std::string& page, const std::string& trace) {
  std::error_code ignored;
  CS_REQUIRE(!std::filesystem::equivalent(page, trace, ignored), "-o ", page,
             ": is a trace, which it would overwrite");
}

void write_page_file(const std::string& name, const Json& data) {
  std::ofstream file(name, std::ios::binary);
  if (!file) fail(ErrorKind::BadInput, str_cat("-o ", name, ": ", std::strerror(errno)));
  write_page(file, data);
  file.close();
  if (!file) fail(ErrorKind::DeviceFailed, str_cat(name, ": could not be written"));
}

}  // namespace

void trace_report(const TraceReportOptions& options, std::ostream& out) {
  const std::vector<overlap::RankTrace> trace = overlap::read_trace(options.file);
  overlap::OverlapReport report = overlap::overlap_of(trace);
  if (!options.baseline.empty())
    overlap::add_baseline(report, trace, overlap::read_trace(options.baseline));
  const Json json = report_json(report, options.file);
  if (!options.page.empty()) {
    for (const std::string& read : {options.file, options.baseline})
      if (!read.empty()) require_other_file(options.page, read);
    write_page_file(options.page, page_data(trace, json));
  }
  if (options.json) {
    out << json_text(json, 2) << '\n';
    return;
  }
  print_report_table(out, report, options.file);
  if (!options.page.empty()) out << "\npage: " << options.page << '\n';
}

}  // namespace coshard::tools
