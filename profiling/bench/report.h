#pragma once
// The results of a bench, with targets, and the machine it ran on; printed as one JSON object or as
// an aligned table. Values; any thread.
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "profiling/json.h"
#include "profiling/robust_stats.h"

namespace coshard::bench {

struct Result {
  std::string name;
  double value = 0;  // the median of several runs; NaN: not measurable, "-" or null
  std::string unit;
  std::optional<double> target;
  bool more_is_better = false;
  std::optional<double> min, max;

  std::optional<bool> ok() const;  // nullopt without a target or a value
};

// Results from repeated measurements, and from a ratio.
Result measured(std::string name, const RobustStats& stats, std::string unit,
                std::optional<double> target = std::nullopt, bool more_is_better = false);
Result ratio(std::string name, double value, std::optional<double> target);  // more is better

std::string compiler_name();  // "g++ 12.2.0"

struct Report {
  std::string bench;
  Json machine;
  std::vector<Result> results;
  std::vector<std::string> failures;  // parts without a result, and why

  // Cores, processor, compiler, build.
  explicit Report(std::string bench_name);
  void note(const std::string& key, Json value) { machine[key] = std::move(value); }
  const Result* find(const std::string& name) const;
  std::string json() const;
  void print_table(std::ostream& out) const;
};

}  // namespace coshard::bench
