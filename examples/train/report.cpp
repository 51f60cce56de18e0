#include "examples/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
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
  CommSummary all;
  for (const CommSummary& table : outcome.tables) all.merge(table);
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
      R"("steps": {}, "warmup": {}, "lr": {}, "dtype": {}, "seed": {}, "text": {}, "plan": {}, "device": {}, "communicator": {}, )"
      R"("link": {}, "progress_threads": {}}})",
      o.ranks, o.threads, o.layers, o.dim, o.heads, o.ffn, o.seq, o.batch, o.steps, o.warmup,
      json_number(o.lr), json_quote(o.dtype_name), o.seed, json_quote(o.text), json_quote(o.plan),
      json_quote(o.device), json_quote(o.communicator),
      o.link.empty() ? "null" : json_quote(o.link), o.progress_threads);
}

// Why a run that ended early did.
std::string cause(const Outcome& outcome) {
  const int step = step_not_finite(outcome);
  if (step == 0) return "a stop was requested";
  const double loss = outcome.loss[static_cast<std::size_t>(step - 1)];
  if (std::isnan(loss)) return "the loss is nan";
  return loss > 0 ? "the loss is inf" : "the loss is -inf";
}

std::string stopped_json(const Outcome& outcome) {
  if (outcome.stopped_after == 0) return "null";
  return fmt::format(R"({{"after_step": {}, "why": {}}})", outcome.stopped_after,
                     json_quote(cause(outcome)));
}

template <class Write>
void write_file(const std::string& name, const Write& write) {
  std::ofstream file(name, std::ios::binary);
  write(file);
  file.close();
  if (!file) fail(ErrorKind::DeviceFailed, str_cat(name, ": could not be written"));
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
  if (outcome.stopped_after > 0)
    out << fmt::format("\nstopped after step {} of {}: {}\n", outcome.stopped_after, options.steps,
                       cause(outcome));
  out << fmt::format(
      "\n{} steps, median {:.1f} ms ({:.1f} to {:.1f}): {:.0f} tokens/s; {:.1f} % of a step in "
      "GEMM and attention\n",
      outcome.step_ms.size(), steps.median, steps.min, steps.max, tokens_per_s(options, outcome),
      outcome.gemm_share * 100);
  if (options.ranks > 1) {
    out << "\nCommunication, mean over " << options.ranks << " ranks:\n";
    print_comm_summary(out, outcome.tables);
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
  if (!outcome.sample.empty())
    out << "\n" << printable(options.prompt) << " |" << printable(outcome.sample) << "\n";
  if (!options.trace.empty())
    out << "\ntrace: " << options.trace << " (open it in https://ui.perfetto.dev)\n";
}

std::string loss_error(const Options& options, const Outcome& outcome) {
  const int step = step_not_finite(outcome);
  if (step == 0 && outcome.bits_per_byte && !std::isfinite(*outcome.bits_per_byte))
    return fmt::format("the held-out score after step {} is {}", outcome.loss.size(),
                       *outcome.bits_per_byte);
  if (step == 0) return "";
  std::string text = fmt::format("{} at step {} (learning rate {:.3g}", cause(outcome), step,
                                 learning_rate(options, step - 1));
  if (step > 1)
    text += fmt::format("; the loss before it is {:.4g}",
                        outcome.loss[static_cast<std::size_t>(step - 2)]);
  return text + ")";
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
      " \"stopped\": {},\n \"compressors\": {{{}}},\n \"config\": {},\n \"loss\": {}}}\n",
      json_number(tokens_per_s(options, outcome)), json_number(steps.median),
      json_number(steps.min), json_number(steps.max),
      outcome.bits_per_byte ? json_number(*outcome.bits_per_byte) : "null",
      json_number(outcome.gemm_share), json_number(hidden_share(outcome)), outcome.parameters,
      stopped_json(outcome), packed, config_json(options), list(outcome.loss));
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
