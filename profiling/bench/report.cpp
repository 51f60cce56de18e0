#include "profiling/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "profiling/json.h"

namespace coshard::bench {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string number_or_null(const std::optional<double>& value) {
  return value ? json_number(*value) : "null";
}

std::string shown(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

}  // namespace

std::string compiler_name() { return kCompiler; }

std::optional<bool> Result::ok() const {
  if (!target) return std::nullopt;
  return more_is_better ? value >= *target : value <= *target;
}

Result measured(std::string name, const RobustStats& stats, std::string unit,
                std::optional<double> target, bool more_is_better) {
  return {std::move(name), stats.median, std::move(unit), target,
          more_is_better,  stats.min,    stats.max};
}

Result ratio(std::string name, double value, std::optional<double> target) {
  return {std::move(name), value, "x", target, true, std::nullopt, std::nullopt};
}

Report::Report(std::string bench_name) : bench(std::move(bench_name)) {
  machine.emplace_back("cores", std::to_string(std::thread::hardware_concurrency()));
  note("cpu", cpu_model());
  note("compiler", kCompiler);
}

void Report::note(const std::string& key, const std::string& text) {
  machine.emplace_back(key, json_quote(text));
}

const Result* Report::find(const std::string& name) const {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [&name](const Result& result) { return result.name == name; });
  return found == results.end() ? nullptr : &*found;
}

std::string Report::json() const {
  std::string out = fmt::format(R"({{"bench": {}, "machine": {{)", json_quote(bench));
  for (std::size_t i = 0; i < machine.size(); ++i)
    out += fmt::format("{}{}: {}", i == 0 ? "" : ", ", json_quote(machine[i].first),
                       machine[i].second);
  out += "}, \"results\": [";
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    const std::optional<bool> ok = r.ok();
    out += fmt::format(
        R"({}{{"name": {}, "value": {}, "unit": {}, "target": {}, "ok": {}, "min": {}, "max": {}}})",
        i == 0 ? "\n  " : ",\n  ", json_quote(r.name), json_number(r.value), json_quote(r.unit),
        number_or_null(r.target), ok ? (*ok ? "true" : "false") : "null", number_or_null(r.min),
        number_or_null(r.max));
  }
  out += "\n], \"failures\": [";
  for (std::size_t i = 0; i < failures.size(); ++i)
    out += (i == 0 ? "" : ", ") + json_quote(failures[i]);
  return out + "]}\n";
}

void Report::print_table(std::ostream& out) const {
  std::size_t width = 4;
  for (const Result& r : results) width = std::max(width, r.name.size());
  out << fmt::format("{:<{}} {:>10} {:<9} {:>10} {:>10} {:>10}  ok\n", "name", width, "value",
                     "unit", "min", "max", "target");
  for (const Result& r : results) {
    const std::optional<bool> ok = r.ok();
    out << fmt::format("{:<{}} {:>10} {:<9} {:>10} {:>10} {:>10}  {}\n", r.name, width,
                       shown(r.value), r.unit, r.min ? shown(*r.min) : "",
                       r.max ? shown(*r.max) : "",
                       r.target ? (r.more_is_better ? ">= " : "<= ") + shown(*r.target) : "",
                       ok ? (*ok ? "yes" : "NO") : "");
  }
  for (const std::string& failure : failures) out << "failed: " << failure << '\n';
}

}  // namespace coshard::bench
