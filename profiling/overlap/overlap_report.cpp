#include "profiling/overlap/overlap_report.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <coshard/runtime/error.h>

namespace coshard::overlap {
namespace {

using Kind = TraceEvent::Kind;

constexpr std::size_t kLongest = 20;

// The intervals of a part's events.
struct Part {
  std::vector<Interval> compute, communication, awaits;
  std::int64_t collectives = 0, bytes = 0;

  void add(const TraceEvent& event) {
    if (event.kind == Kind::Kernel) return compute.push_back(event.time);
    if (event.kind == Kind::Await) return awaits.push_back(event.time);
    communication.push_back(event.time);
    ++collectives;
    bytes += event.bytes;
  }
  Figures figures(const TimeSet& stood_still) {
    const TimeSet in_flight(std::move(communication));
    return {collectives,
            bytes,
            TimeSet(std::move(compute)).length(),
            in_flight.length(),
            TimeSet(std::move(awaits)).length(),
            in_flight.common(stood_still).length()};
  }
};

std::pair<std::string, std::string> kind_and_purpose(const std::string& name) {
  const std::size_t space = name.find(' ');
  if (space == std::string::npos) return {name, ""};
  return {name.substr(0, space), name.substr(space + 1)};
}

// "layers.0.attn", "layers.0", "layers", "model": the whole, and a module of that name in it.
std::vector<std::string> module_and_those_around_it(std::string path) {
  std::vector<std::string> paths = {path};
  if (path.empty() || path == "model") return paths;
  const bool has_it = path.starts_with("model.");
  for (std::size_t dot = path.rfind('.'); dot != std::string::npos; dot = path.rfind('.'))
    paths.push_back(path = path.substr(0, dot));
  if (!has_it) paths.emplace_back("model");
  return paths;
}

bool counts(const TraceEvent& event) {
  return event.kind == Kind::Kernel || event.kind == Kind::Collective || event.kind == Kind::Await;
}

Whole whole_of(const RankTrace& rank, const TimeSet& stood_still) {
  const Interval all = span_of({&rank, 1});
  const TimeSet busy = times_of(rank, Kind::Kernel).united(stood_still);
  const TimeSet idle = TimeSet({all}).minus(busy);
  Part part;
  for (const TraceEvent& event : rank.events)
    if (counts(event)) part.add(event);
  Whole whole{part.figures(stood_still)};
  whole.total_ns = all.length();
  whole.idle_ns = idle.length();
  whole.idle_gaps = std::ssize(idle.intervals());
  for (const Interval& gap : idle.intervals())
    whole.longest_idle_ns = std::max(whole.longest_idle_ns, gap.length());
  return whole;
}

template <class Key>
std::map<Key, Figures> figures_of(std::map<Key, Part>& parts, const TimeSet& stood_still) {
  std::map<Key, Figures> figures;
  for (auto& [key, part] : parts) figures[key] = part.figures(stood_still);
  return figures;
}

// With the collective that was awaited for most of it.
Stretch stretch_of(const RankTrace& rank, const Interval& time) {
  const TraceEvent* most = nullptr;
  std::int64_t longest = 0;
  for (const TraceEvent& event : rank.events) {
    if (event.kind != Kind::Await) continue;
    const std::int64_t common =
        std::min(event.time.end, time.end) - std::max(event.time.begin, time.begin);
    if (common > longest) longest = common, most = &event;
  }
  if (most == nullptr) return {rank.rank, time, "", "", ""};
  return {rank.rank, time, most->name, most->module, most->at};
}

void add_stretches(std::vector<Stretch>& longest, const RankTrace& rank, const TimeSet& exposed) {
  std::vector<Interval> times = exposed.intervals();
  const std::size_t kept = std::min(kLongest, times.size());
  const auto end = times.begin() + static_cast<std::ptrdiff_t>(kept);
  std::ranges::partial_sort(times, end, std::greater(), &Interval::length);
  for (auto one = times.begin(); one != end; ++one) longest.push_back(stretch_of(rank, *one));
}

RankOverlap overlap_of(const RankTrace& rank, std::vector<Stretch>& longest) {
  const TimeSet stood_still = times_of(rank, Kind::Await);
  RankOverlap found{rank.rank, whole_of(rank, stood_still), {}, {}};
  std::map<std::pair<std::string, std::string>, Part> kinds;
  std::map<std::string, Part> modules;
  for (const TraceEvent& event : rank.events) {
    if (!counts(event)) continue;
    if (event.kind != Kind::Kernel) kinds[kind_and_purpose(event.name)].add(event);
    for (const std::string& path : module_and_those_around_it(event.module))
      modules[path].add(event);
  }
  found.kinds = figures_of(kinds, stood_still);
  found.modules = figures_of(modules, stood_still);
  add_stretches(longest, rank, stood_still);
  return found;
}

void add_to(Figures& sum, const Figures& one) {
  sum.collectives += one.collectives;
  sum.bytes += one.bytes;
  sum.compute_ns += one.compute_ns;
  sum.communication_ns += one.communication_ns;
  sum.exposed_ns += one.exposed_ns;
  sum.blocked_ns += one.blocked_ns;
}

void divide(Figures& sum, std::int64_t by) {
  for (std::int64_t* one : {&sum.collectives, &sum.bytes, &sum.compute_ns, &sum.communication_ns,
                            &sum.exposed_ns, &sum.blocked_ns})
    *one = (*one + by / 2) / by;
}

template <class Known>
auto sum_if_known_by_all(const OverlapReport& report, const Known& known) {
  auto sum = known(report.ranks.front().all);
  for (std::size_t i = 1; i < report.ranks.size() && sum; ++i) {
    const auto next = known(report.ranks[i].all);
    sum = next ? std::optional(*sum + *next) : std::nullopt;
  }
  return sum;
}

std::int64_t ranges_of(const RankTrace& rank) {
  return std::ranges::count(rank.events, Kind::Range, &TraceEvent::kind);
}

std::set<std::string> modules_of(const RankTrace& rank) {
  std::set<std::string> names;
  for (const TraceEvent& event : rank.events)
    if (event.kind == Kind::Module) names.insert(event.name);
  return names;
}

void require_same_run(const std::map<std::string, std::string>& trace,
                      const std::map<std::string, std::string>& baseline) {
  CS_REQUIRE(trace.contains("simulated") == baseline.contains("simulated"), "the baseline is ",
             baseline.contains("simulated") ? "" : "not ", "a simulation, the trace is",
             trace.contains("simulated") ? "" : " not");
  const auto overlap = baseline.find("overlap");
  CS_REQUIRE(overlap == baseline.end() || overlap->second == "off",
             "the baseline is of a run with --overlap ", overlap->second, ": record it with off");
  const auto weave = baseline.find("weave");
  CS_REQUIRE(weave == baseline.end() || weave->second == "1",
             "the baseline is of a run with --weave ", weave->second, ": record it without");
  for (const auto& [name, value] : trace) {
    // What is simulated, in words: its figures are compared.
    if (name == "overlap" || name == "weave" || name == "simulated") continue;
    const auto other = baseline.find(name);
    CS_REQUIRE(other == baseline.end() || other->second == value, "the baseline is of ", name, ' ',
               other->second, ", the trace of ", name, ' ', value);
  }
}

// Only if neither trace dropped events.
void require_same_modules(const RankTrace& trace, const RankTrace& baseline) {
  if (trace.dropped > 0 || baseline.dropped > 0) return;
  const std::set<std::string> own = modules_of(trace), theirs = modules_of(baseline);
  std::vector<std::string> differ;
  std::ranges::set_symmetric_difference(own, theirs, std::back_inserter(differ));
  CS_REQUIRE(differ.empty(), "the baseline must be of the same model: module ", differ.front(),
             " is only in the ", own.contains(differ.front()) ? "trace" : "baseline");
}

std::string link_text(const OverlapReport& report) {
  return report.link.empty() ? "no emulated link" : str_cat("a link of ", report.link);
}

}  // namespace

std::optional<double> Figures::hidden() const {
  if (communication_ns == 0) return std::nullopt;
  return 1 - static_cast<double>(blocked_ns) / static_cast<double>(communication_ns);
}

OverlapReport overlap_of(const std::vector<RankTrace>& trace) {
  OverlapReport report;
  for (const RankTrace& rank : trace) {
    report.ranks.push_back(overlap_of(rank, report.longest));
    report.dropped += rank.dropped;
    if (!rank.link.empty()) report.link = rank.link;
    report.about = rank.about;
  }
  std::ranges::stable_sort(report.longest, std::greater(),
                           [](const Stretch& one) { return one.time.length(); });
  if (report.longest.size() > kLongest) report.longest.resize(kLongest);
  return report;
}

RankOverlap mean_of(const OverlapReport& report) {
  RankOverlap mean{-1, {}, {}, {}};
  const auto n = std::ssize(report.ranks);
  if (n == 0) return mean;
  for (const RankOverlap& rank : report.ranks) {
    add_to(mean.all, rank.all);
    mean.all.total_ns += rank.all.total_ns / n;
    mean.all.idle_ns += rank.all.idle_ns / n;
    mean.all.idle_gaps += rank.all.idle_gaps;
    mean.all.longest_idle_ns = std::max(mean.all.longest_idle_ns, rank.all.longest_idle_ns);
    for (const auto& [kind, figures] : rank.kinds) add_to(mean.kinds[kind], figures);
    for (const auto& [path, figures] : rank.modules) add_to(mean.modules[path], figures);
  }
  divide(mean.all, n);
  mean.all.idle_gaps /= n;
  for (auto& [kind, figures] : mean.kinds) divide(figures, n);
  for (auto& [path, figures] : mean.modules) divide(figures, n);
  mean.all.ect_ns = sum_if_known_by_all(report, [](const Whole& of) { return of.ect_ns; });
  if (mean.all.ect_ns) *mean.all.ect_ns /= n;
  mean.all.efficiency = sum_if_known_by_all(report, [](const Whole& of) { return of.efficiency; });
  if (mean.all.efficiency) *mean.all.efficiency /= static_cast<double>(n);
  return mean;
}

void add_baseline(OverlapReport& report, const std::vector<RankTrace>& trace,
                  const std::vector<RankTrace>& baseline) {
  const OverlapReport base = overlap_of(baseline);
  require_same_run(report.about, base.about);
  CS_REQUIRE(trace.size() == baseline.size(), "the baseline is of ", baseline.size(),
             " ranks, the trace of ", trace.size());
  const bool same_link = base.link == report.link;
  if (!same_link)
    report.why_no_efficiency =
        str_cat("the baseline is on ", link_text(base), ", the trace on ", link_text(report));
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const std::int64_t ranges = ranges_of(trace[i]), theirs = ranges_of(baseline[i]);
    CS_REQUIRE(ranges == theirs && trace[i].rank == baseline[i].rank,
               "the baseline must be of the same steps: rank ", baseline[i].rank, " has ", theirs,
               " named ranges there, rank ", trace[i].rank, " has ", ranges, " here");
    require_same_modules(trace[i], baseline[i]);
    Whole& own = report.ranks[i].all;
    const Whole& other = base.ranks[i].all;
    own.ect_ns = own.total_ns - other.compute_ns;
    const std::int64_t serial = other.total_ns - other.compute_ns;
    if (!same_link) continue;
    if (other.collectives > 0 && serial > 0)
      own.efficiency = 1 - static_cast<double>(*own.ect_ns) / static_cast<double>(serial);
    else
      report.why_no_efficiency =
          str_cat("rank ", baseline[i].rank, " of the baseline does not wait for communication");
  }
}

}  // namespace coshard::overlap
