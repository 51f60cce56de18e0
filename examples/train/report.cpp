#include "examples/train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "profiling/json.h"
#include "profiling/robust_stats.h"
#include "runtime/launch/rank_directory.h"

namespace coshard::train {
namespace {

RobustStats step_stats(const Outcome& outcome) {
  if (outcome.step_ms.empty()) return {};
  const auto settled = static_cast<std::ptrdiff_t>(
      std::min<std::size_t>(kSettlingSteps, outcome.step_ms.size() - 1));
  return robust_stats({outcome.step_ms.begin() + settled, outcome.step_ms.end()});
}

double tokens_per_s(const Options& options, const Outcome& outcome) {
  if (outcome.step_ms.empty()) return 0;
  return options.batch * options.seq / step_stats(outcome).median * 1e3;
}

CommSummary of_all_ranks(const Outcome& outcome) {
  CommSummary all;
  for (const CommSummary& table : outcome.tables) all.merge(table);
  return all;
}

Json config_json(const Options& o, const Outcome& outcome) {
  return {{"ranks", o.ranks},
          {"threads", outcome.threads},
          {"layers", o.layers},
          {"dim", o.dim},
          {"heads", o.heads},
          {"ffn", o.ffn},
          {"seq", o.seq},
          {"batch", o.batch},
          {"steps", o.steps},
          {"every", o.every},
          {"warmup", o.warmup},
          {"lr", o.lr},
          {"dtype", o.dtype_name},
          {"seed", o.seed},
          {"text", o.text},
          {"plan", o.plan},
          {"overlap", o.overlap},
          {"weave", o.weave},
          {"device", o.device},
          {"communicator", o.communicator},
          {"link", o.link.empty() ? Json() : Json(o.link)},
          {"progress_threads", o.progress_threads}};
}

// What the trace records of the run, without what may differ in its baseline, such as the link.
TraceAbout about(const Options& o, const Outcome& outcome) {
  const Processes several = processes(o.world());
  return {
      {"model", fmt::format("layers={},dim={},heads={},ffn={}", o.layers, o.dim, o.heads, o.ffn)},
      {"plan", o.plan},
      {"overlap", o.overlap},
      {"weave", std::to_string(o.weave)},
      {"dtype", o.dtype_name},
      {"device", o.device},
      {"transport", several.mpi.empty()
                        ? "threads of one process"
                        : fmt::format("{} processes over {}", several.all, several.mpi)},
      {"threads", std::to_string(outcome.threads)},
      {"batch", std::to_string(o.batch)},
      {"seq", std::to_string(o.seq)}};
}

// Means over ranks and over the steps that have settled.
Json communication_json(const Options& options, const Outcome& outcome) {
  const CommSummary all = of_all_ranks(outcome);
  const auto settled = static_cast<std::size_t>(std::clamp(options.steps - 1, 0, kSettlingSteps));
  const std::size_t steps = outcome.step_ms.size();  // a run that ended early may not have settled
  const auto counted =
      static_cast<double>(std::max<std::size_t>(1, steps > settled ? steps - settled : steps) *
                          std::max<std::size_t>(1, outcome.tables.size()));
  Json rows = Json::array();
  for (const CommSummary::Row& row : all.rows())
    rows.push_back(
        {{"kind", to_string(row.kind)},
         {"for", row.label},
         {"per_step", static_cast<double>(row.count) / counted},
         {"bytes_per_step", static_cast<double>(row.bytes) / counted},
         {"in_flight_ms_per_step", static_cast<double>(row.in_flight_ns) * 1e-6 / counted},
         {"exposed_ms_per_step", static_cast<double>(row.exposed_ns) * 1e-6 / counted}});
  const double exposed = static_cast<double>(all.total().exposed_ns) * 1e-6 / counted;
  return {{"exposed_ms_per_step", exposed}, {"rows", std::move(rows)}};
}

// Why a run ended early.
std::string cause(const Outcome& outcome) {
  const int step = step_not_finite(outcome);
  if (step == 0) return "a stop was requested";
  const double loss = outcome.loss[static_cast<std::size_t>(step - outcome.resumed_from - 1)];
  if (std::isnan(loss)) return "the loss is nan";
  return loss > 0 ? "the loss is inf" : "the loss is -inf";
}

Json stopped_json(const Outcome& outcome) {
  if (outcome.stopped_after == 0) return {};
  return {{"after_step", outcome.stopped_after}, {"why", cause(outcome)}};
}

// Why the file could not be written; empty: it was.
template <class Write>
std::string write_file(const std::string& name, const Write& write) {
  std::ofstream file(name, std::ios::binary);
  write(file);
  file.close();
  return file ? "" : name + ": could not be written";
}

void print_score(std::ostream& out, double bits_per_byte, std::int64_t parameters,
                 const std::vector<Compressor>& compressors) {
  out << fmt::format("held-out {:.3f} bits per byte\n", bits_per_byte);
  const Compressor* best = nullptr;
  for (const Compressor& compressor : compressors) {
    const std::optional<double>& bits = compressor.bits_per_byte;
    out << fmt::format("{:<8} {}\n", compressor.name,
                       bits ? fmt::format("{:.3f} on the whole text", *bits) : "not installed");
    if (bits && (best == nullptr || *bits < *best->bits_per_byte)) best = &compressor;
  }
  if (best == nullptr || !std::isfinite(bits_per_byte)) return;
  const bool won = bits_per_byte < *best->bits_per_byte;
  out << fmt::format(
      "{} has fewer bits: {:.3f} against {:.3f} of {}. They do not measure the same: the model\n"
      "predicts bytes that it was not trained on, and its {} parameters are not counted;\n"
      "a compressor stores the whole text, and its figure counts all that it takes to restore "
      "it.\n",
      won ? "The model" : best->name, won ? bits_per_byte : *best->bits_per_byte,
      won ? *best->bits_per_byte : bits_per_byte, won ? best->name : "the model", parameters);
}

// A sample may hold any byte; control characters and non-ASCII bytes are shown as dots.
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
      "\n{} steps, median {:.1f} ms ({:.1f} to {:.1f}): {:.0f} tokens/s{}\n",
      outcome.step_ms.size(), steps.median, steps.min, steps.max, tokens_per_s(options, outcome),
      outcome.gemm_share
          ? fmt::format("; {:.1f} % of a step in GEMM and attention", *outcome.gemm_share * 100)
          : "");
  if (options.ranks > 1) {
    out << fmt::format("\nCommunication, mean over {} ranks:\n", options.ranks);
    print_comm_summary(out, outcome.tables);
  }
  out << '\n';
  if (outcome.bits_per_byte) {
    print_score(out, *outcome.bits_per_byte, outcome.parameters, compressors);
  } else {
    out << "held-out: nothing was scored\n";
  }
  if (!outcome.sample.empty())
    out << "\n" << printable(options.prompt) << " |" << printable(outcome.sample) << "\n";
  if (!outcome.saved.empty())
    out << fmt::format("\nsaved {}; --resume goes on from it\n", outcome.saved);
  std::size_t dropped = 0;
  for (const ChromeTrace& trace : outcome.traces) dropped += trace.dropped();
  if (dropped > 0)
    out << fmt::format("\nThe trace lacks {} events: --trace-steps {} is more than it can hold.\n",
                       dropped, options.trace_steps);
}

std::string loss_error(const Options& options, const Outcome& outcome) {
  const int step = step_not_finite(outcome);
  if (step == 0 && outcome.bits_per_byte && !std::isfinite(*outcome.bits_per_byte))
    return fmt::format("the held-out score after step {} is {}",
                       static_cast<std::size_t>(outcome.resumed_from) + outcome.loss.size(),
                       *outcome.bits_per_byte);
  if (step == 0) return "";
  std::string text = fmt::format("{} at step {} (learning rate {:.3g}", cause(outcome), step,
                                 learning_rate(options, step - 1));
  if (const int before = step - outcome.resumed_from - 2; before >= 0)
    text += fmt::format("; the loss before it is {:.4g}",
                        outcome.loss[static_cast<std::size_t>(before)]);
  return text + ")";
}

std::string report_json(const Options& options, const Outcome& outcome,
                        const std::vector<Compressor>& compressors) {
  const RobustStats steps = step_stats(outcome);
  const CommSummary communication = of_all_ranks(outcome);
  const bool communicated = communication.total().in_flight_ns > 0;
  const auto or_null = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  Json packed = Json::object();
  for (const Compressor& compressor : compressors)
    packed[compressor.name] = or_null(compressor.bits_per_byte);
  const Json all{{"tokens_per_s", tokens_per_s(options, outcome)},
                 {"step_ms", steps.median},
                 {"step_ms_min", steps.min},
                 {"step_ms_max", steps.max},
                 {"bits_per_byte", or_null(outcome.bits_per_byte)},
                 {"gemm_share", or_null(outcome.gemm_share)},
                 {"hidden_share", communicated ? Json(communication.hidden_share()) : Json()},
                 {"communication", communication_json(options, outcome)},
                 {"parameters", outcome.parameters},
                 {"stopped", stopped_json(outcome)},
                 {"resumed_from", outcome.resumed_from},
                 {"saved", outcome.saved.empty() ? Json() : Json(outcome.saved)},
                 {"stall_ms", outcome.stall_ms},
                 {"compressors", std::move(packed)},
                 {"config", config_json(options, outcome)},
                 {"loss", outcome.loss}};
  return json_text(all, 1) + "\n";
}

std::vector<std::string> write_files(const Options& options, const Outcome& outcome,
                                     const std::vector<Compressor>& compressors) {
  std::vector<std::string> failures;
  const auto write = [&failures](const std::string& name, const auto& contents) {
    if (name.empty()) return;
    if (std::string why = write_file(name, contents); !why.empty())
      failures.push_back(std::move(why));
  };
  write(options.json,
        [&](std::ostream& out) { out << report_json(options, outcome, compressors); });
  write(options.trace, [&](std::ostream& out) {
    write_chrome_trace(out, outcome.traces, 0, std::nullopt, about(options, outcome));
  });
  return failures;
}

}  // namespace coshard::train
