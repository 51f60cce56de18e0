#include "tools/trace/trace_report.h"

#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <vector>

#include <coshard/runtime/error.h>
#include "profiling/output_file.h"
#include "profiling/overlap/overlap_report.h"
#include "tools/trace/page.h"
#include "tools/trace/picture.h"
#include "tools/trace/report_json.h"
#include "tools/trace/report_table.h"

namespace coshard::tools {
namespace {

void require_known_suffix(const std::string& page) {
  CS_REQUIRE(page.ends_with(".html") || page.ends_with(".svg"), "-o ", page,
             ": expected a name that ends in .html or .svg");
}

void require_other_file(const std::string& page, const std::string& trace) {
  CS_REQUIRE(!is_same_file(page, trace), "-o ", page, ": is a trace, which it would overwrite");
}

}  // namespace

void trace_report(const TraceReportOptions& options, std::ostream& out) {
  for (const std::string& read : {options.file, options.baseline})
    if (!options.page.empty() && !read.empty()) require_other_file(options.page, read);
  if (!options.page.empty()) require_known_suffix(options.page);
  const std::vector<overlap::RankTrace> trace = overlap::read_trace(options.file);
  std::optional<std::vector<overlap::RankTrace>> baseline;
  if (!options.baseline.empty()) baseline = overlap::read_trace(options.baseline);
  overlap::OverlapReport report = overlap::overlap_of(trace);
  if (baseline) overlap::add_baseline(report, trace, *baseline);
  const Json json = report_json(report, options.file);
  const bool is_picture = options.page.ends_with(".svg");
  if (!options.page.empty()) {
    write_output("-o", options.page, [&](std::ostream& file) {
      if (is_picture) return write_picture(file, trace, baseline ? &*baseline : nullptr);
      write_page(file, page_data(trace, json));
    });
  }
  if (options.json) {
    out << json_text(json, 2) << '\n';
    return;
  }
  print_report_table(out, report, options.file);
  if (!options.page.empty())
    out << (is_picture ? "\npicture: " : "\npage: ") << options.page << '\n';
}

}  // namespace coshard::tools
