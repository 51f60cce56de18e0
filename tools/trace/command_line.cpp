#include "tools/trace/command_line.h"

#include <iostream>
#include <memory>

#include "tools/trace/trace_merge.h"
#include "tools/trace/trace_report.h"

namespace coshard::tools {
namespace {

void add_trace_merge(CLI::App& trace, std::function<int()>& chosen) {
  CLI::App* sub = trace.add_subcommand(
      "merge", "Merge the traces that the processes of a job have written into one");
  sub->footer("Example: coshard trace merge p0.json p1.json -o run.trace.json");
  const auto options = std::make_shared<TraceMergeOptions>();
  sub->add_option("FILE", options->files, "traces written by write_chrome_trace")->required();
  sub->add_option("-o,--output", options->output, "the trace of all ranks: run.trace.json")
      ->required();
  sub->callback([options, &chosen] {
    chosen = [options] {
      trace_merge(*options, std::cout);
      return 0;
    };
  });
}

}  // namespace

void add_trace(CLI::App& app, std::function<int()>& chosen) {
  CLI::App* trace =
      app.add_subcommand("trace", "Analyse and merge Chrome traces written by coshard");
  trace->require_subcommand(1);
  trace->footer("Example: coshard trace report run.trace.json -o run.html");
  CLI::App* sub = trace->add_subcommand(
      "report", "Show how much communication ran under compute, by rank, kind and module");
  const auto options = std::make_shared<TraceReportOptions>();
  sub->add_option("FILE", options->file, "trace of all ranks, e.g. of `train --trace FILE`")
      ->required();
  sub->add_option(
      "--baseline", options->baseline,
      "trace of the same steps without overlap: gives the effective communication time");
  sub->add_flag("--json", options->json, "print a single JSON object");
  sub->add_option(
      "-o,--output", options->page,
      "also write a page that needs no network, run.html, or a picture of one step, run.svg");
  sub->callback([options, &chosen] {
    chosen = [options] {
      trace_report(*options, std::cout);
      return 0;
    };
  });
  add_trace_merge(*trace, chosen);
}

}  // namespace coshard::tools
