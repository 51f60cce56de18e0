#include "examples/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "profiling/json.h"
#include "profiling/robust_stats.h"

namespace coshard::train {
namespace {

RobustStats step_stats(const Outcome& outcome) {
  const auto settled = static_cast<std::ptrdiff_t>(
      std::min<std::size_t>(kSettlingSteps, outcome.step_ms.size() - 1));
  return robust_stats({outcome.step_ms.begin() + settled, outcome.step_ms.end()});
}

double tokens_per_s(const Options& options, const Outcome& outcome) {
  return options.batch * options.seq / step_stats(outcome).median * 1e3;
}

double hidden_share(const Outcome& outcome) {
  ExitTable all;
  for (const ExitTable& table : outcome.tables) all.merge(table);
  return all.hidden_share();
}

std::string list(const std::vector<double>& values) {
  std::string out = "[";
  for (const double value : values) out += (out.size() > 1 ? ", " : "") + json_number(value);
  return out + "]";
}

std::string config_json(const Options& o) {
  return fmt::format(
      R"({{"ranks": {}, "threads": {}, "layers": {}, "dim": {}, "heads": {}, "ffn": {}, "seq": {}, "batch": {}, )"
      R"("steps": {}, "warmup": {}, "lr": {}, "dtype": {}, "seed": {}, "text": {}, "plan": {}, "device": {}, "communicator": {}}})",
      o.ranks, o.threads, o.layers, o.dim, o.heads, o.ffn, o.seq, o.batch, o.steps, o.warmup,
      json_number(o.lr), json_quote(o.dtype_name), o.seed, json_quote(o.text), json_quote(o.plan),
      json_quote(o.device), json_quote(o.communicator));
}

template <class Write>
void write_file(const std::string& name, const Write& write) {
  std::ofstream file(name, std::ios::binary);
  write(file);
  file.close();
  if (!file) fail(ErrorKind::DeviceFailed, cat(name, ": could not be written"));
}

// A sample may hold any byte; what a terminal could act on is shown as a dot.
std::string printable(std::string text) {
  for (char& c : text)
    if (c != '\n' && (c < ' ' || c > '~')) c = '.';
  return text;
}

}  // namespace

void print_report(std::ostream& out, const Options& options, const Outcome& outcome,
                  const std::vector<Compressor>& compressors) {
  const RobustStats steps = step_stats(outcome);
  out << fmt::format(
      "\n{} steps, median {:.1f} ms ({:.1f} to {:.1f}): {:.0f} tokens/s; {:.1f} % of a step in "
      "GEMM and attention\n",
      outcome.step_ms.size(), steps.median, steps.min, steps.max, tokens_per_s(options, outcome),
      outcome.gemm_share * 100);
  if (options.ranks > 1) {
    out << "\nCommunication, mean over " << options.ranks << " ranks:\n";
    print_exit_table(out, outcome.tables);
  }
  out << '\n';
  if (outcome.bits_per_byte) {
    out << fmt::format("held-out {:.3f} bits per byte\n", *outcome.bits_per_byte);
  } else {
    out << "held-out: nothing was scored\n";
  }
  for (const Compressor& compressor : compressors)
    out << fmt::format("{:<8} {}\n", compressor.name,
                       compressor.bits_per_byte
                           ? fmt::format("{:.3f} on the whole text", *compressor.bits_per_byte)
                           : "not installed");
  if (options.sample > 0)
    out << "\n" << printable(options.prompt) << " |" << printable(outcome.sample) << "\n";
  if (!options.trace.empty())
    out << "\ntrace: " << options.trace << " (open it in https://ui.perfetto.dev)\n";
}

std::string report_json(const Options& options, const Outcome& outcome,
                        const std::vector<Compressor>& compressors) {
  const RobustStats steps = step_stats(outcome);
  std::string packed;
  for (const Compressor& compressor : compressors)
    packed +=
        fmt::format("{}{}: {}", packed.empty() ? "" : ", ", json_quote(compressor.name),
                    compressor.bits_per_byte ? json_number(*compressor.bits_per_byte) : "null");
  return fmt::format(
      "{{\"tokens_per_s\": {},\n \"step_ms\": {}, \"step_ms_min\": {}, \"step_ms_max\": {},\n"
      " \"bits_per_byte\": {},\n \"gemm_share\": {}, \"hidden_share\": {},\n \"parameters\": {},\n"
      " \"compressors\": {{{}}},\n \"config\": {},\n \"loss\": {}}}\n",
      json_number(tokens_per_s(options, outcome)), json_number(steps.median),
      json_number(steps.min), json_number(steps.max),
      outcome.bits_per_byte ? json_number(*outcome.bits_per_byte) : "null",
      json_number(outcome.gemm_share), json_number(hidden_share(outcome)), outcome.parameters,
      packed, config_json(options), list(outcome.loss));
}

void write_files(const Options& options, const Outcome& outcome,
                 const std::vector<Compressor>& compressors) {
  if (!options.trace.empty())
    write_file(options.trace, [&](std::ostream& out) { write_chrome_trace(out, outcome.traces); });
  if (!options.json.empty())
    write_file(options.json,
               [&](std::ostream& out) { out << report_json(options, outcome, compressors); });
}

}  // namespace coshard::train
