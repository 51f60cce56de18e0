#include "profiling/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

namespace coshard::bench {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

std::string shown(double value) {
  if (std::isnan(value)) return "-";
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
  if (!target || std::isnan(value)) return std::nullopt;
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
  note("cores", std::thread::hardware_concurrency());
  note("cpu", cpu_model());
  note("compiler", kCompiler);
}

const Result* Report::find(const std::string& name) const {
  const auto found = std::find_if(results.begin(), results.end(),
                                  [&name](const Result& result) { return result.name == name; });
  return found == results.end() ? nullptr : &*found;
}

std::string Report::json() const {
  Json all{{"bench", bench}, {"machine", machine}, {"results", Json::array()}};
  for (const Result& r : results)
    all["results"].push_back(Json{{"name", r.name},
                                  {"value", r.value},
                                  {"unit", r.unit},
                                  {"target", or_null(r.target)},
                                  {"ok", or_null(r.ok())},
                                  {"min", or_null(r.min)},
                                  {"max", or_null(r.max)}});
  all["failures"] = failures;
  return json_text(all, 1) + "\n";
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
