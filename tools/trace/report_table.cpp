#include "tools/trace/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace coshard::tools {
namespace {

using overlap::Figures;
using overlap::RankOverlap;

constexpr std::size_t kMostRows = 20, kMostStretches = 5;

std::string as_ms(std::int64_t ns) { return fmt::format("{:.2f}", static_cast<double>(ns) / 1e6); }

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f}", *share * 100 + 0.0) : "-";
}

std::string megabytes(std::int64_t bytes) {
  return fmt::format("{:.3f}", static_cast<double>(bytes) / 1e6);
}

void print_rank(std::ostream& out, const std::string& name, const overlap::Whole& all) {
  out << fmt::format("{:<5} {:>10} {:>10} {:>13} {:>10} {:>8} {:>9} {:>11} {:>9} {:>11}", name,
                     as_ms(all.total_ns), as_ms(all.compute_ns), as_ms(all.communication_ns),
                     as_ms(all.exposed_ns), percent(all.hidden()), as_ms(all.idle_ns),
                     all.collectives, megabytes(all.bytes), all.ect_ns ? as_ms(*all.ect_ns) : "-");
  if (all.efficiency) out << fmt::format(" {:>6}", percent(all.efficiency));
  out << '\n';
}

void print_ranks(std::ostream& out, const overlap::OverlapReport& report, const RankOverlap& mean) {
  out << fmt::format("{:<5} {:>10} {:>10} {:>13} {:>10} {:>8} {:>9} {:>11} {:>9} {:>11}", "rank",
                     "total ms", "computing", "communicating", "exposed", "hidden %", "idle",
                     "collectives", "MB", "ECT ms");
  out << (mean.all.efficiency ? "    E %\n" : "\n");
  for (const RankOverlap& rank : report.ranks) print_rank(out, std::to_string(rank.rank), rank.all);
  if (report.ranks.size() > 1) print_rank(out, "mean", mean.all);
  if (!mean.all.ect_ns)
    out << "ECT is not known: --baseline takes a trace of the same steps without overlap\n";
  if (!report.why_no_efficiency.empty())
    out << "E is not known: " << report.why_no_efficiency << '\n';
}

std::string title_of(const overlap::OverlapReport& report) {
  const auto simulated = report.about.find("simulated");
  if (simulated == report.about.end())
    return fmt::format("{} rank{}{}", report.ranks.size(), report.ranks.size() == 1 ? "" : "s",
                       report.link.empty() ? "" : ", on an emulated link of " + report.link);
  return fmt::format("a simulation of {}, of which rank {} stands for all; links: {}",
                     simulated->second, report.ranks.front().rank,
                     report.link.empty() ? "none" : report.link);
}

// The most exposed first; for equal exposure, the longest compute.
template <class Rows>
auto by_exposed(const Rows& rows) {
  std::vector<typename Rows::const_pointer> sorted;
  for (const auto& row : rows) sorted.push_back(&row);
  std::ranges::stable_sort(sorted, [](const auto* a, const auto* b) {
    return std::pair(a->second.exposed_ns, a->second.compute_ns) >
           std::pair(b->second.exposed_ns, b->second.compute_ns);
  });
  return sorted;
}

void print_kinds(std::ostream& out, const RankOverlap& mean) {
  constexpr auto kLine = "{:<15} {:<22} {:>7} {:>11} {:>13} {:>11} {:>9}\n";
  out << '\n'
      << fmt::format(fmt::runtime(kLine), "op", "for", "count", "MB", "communicating", "exposed ms",
                     "hidden %");
  for (const auto* row : by_exposed(mean.kinds)) {
    const Figures& of = row->second;
    out << fmt::format(fmt::runtime(kLine), row->first.first, row->first.second, of.collectives,
                       megabytes(of.bytes), as_ms(of.communication_ns), as_ms(of.exposed_ns),
                       percent(of.hidden()));
  }
}

void print_modules(std::ostream& out, const RankOverlap& mean) {
  constexpr auto kLine = "{:<38} {:>7} {:>11} {:>13} {:>11} {:>9}\n";
  out << '\n'
      << fmt::format(fmt::runtime(kLine), "module, with its submodules", "count", "computing",
                     "communicating", "exposed ms", "hidden %");
  const auto sorted = by_exposed(mean.modules);
  for (std::size_t i = 0; i < std::min(kMostRows, sorted.size()); ++i) {
    const Figures& of = sorted[i]->second;
    out << fmt::format(fmt::runtime(kLine),
                       sorted[i]->first.empty() ? "outside of modules" : sorted[i]->first,
                       of.collectives, as_ms(of.compute_ns), as_ms(of.communication_ns),
                       as_ms(of.exposed_ns), percent(of.hidden()));
  }
  if (sorted.size() > kMostRows)
    out << fmt::format("and {} modules that are less exposed; --json has all of them\n",
                       sorted.size() - kMostRows);
}

void print_longest(std::ostream& out, const overlap::OverlapReport& report) {
  constexpr auto kLine = "{:>10} {:<5} {:>10}  {:<34} {:<22} {}";
  out << "\nLongest exposed:\n"
      << fmt::format(fmt::runtime(kLine), "exposed ms", "rank", "begins at", "collective", "module",
                     "at\n");
  const std::size_t shown = std::min(kMostStretches, report.longest.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const overlap::Stretch& one = report.longest[i];
    std::string line =
        fmt::format(fmt::runtime(kLine), as_ms(one.time.length()), one.rank, as_ms(one.time.begin),
                    one.collective, one.module.empty() ? "-" : one.module, one.at);
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace

void print_report_table(std::ostream& out, const overlap::OverlapReport& report,
                        const std::string& file) {
  const RankOverlap mean = overlap::mean_of(report);
  out << file << ": " << title_of(report);
  if (report.dropped > 0)
    out << fmt::format(", without {} events that were dropped", report.dropped);
  out << "\n\n";
  print_ranks(out, report, mean);
  if (!mean.kinds.empty()) print_kinds(out, mean);
  print_modules(out, mean);
  if (!report.longest.empty()) print_longest(out, report);
}

}  // namespace coshard::tools
