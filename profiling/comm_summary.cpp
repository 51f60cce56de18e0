#include <coshard/profiling/comm_summary.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace coshard {
namespace {

void add(CommSummary::Row& sum, const CommSummary::Row& part) {
  sum.count += part.count;
  sum.bytes += part.bytes;
  sum.in_flight_ns += part.in_flight_ns;
  sum.exposed_ns += part.exposed_ns;
  sum.blocked_ns += part.blocked_ns;
}

}  // namespace

void CommSummary::forget(Counted& counted) const {
  const auto earliest = [this] {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const auto& [id, at] : issued_at_) first = std::min(first, at);
    return first;
  };
  for (TimeSet* each : {&counted.in_flight, &counted.exposed, &counted.blocked})
    each->forget(earliest);
}

double CommSummary::Row::hidden() const {
  if (in_flight_ns <= 0) return 0;
  return 1 - static_cast<double>(blocked_ns) / static_cast<double>(in_flight_ns);
}

double CommSummary::Row::gigabytes_per_s() const {
  return in_flight_ns > 0 ? static_cast<double>(bytes) / static_cast<double>(in_flight_ns) : 0;
}

CommSummary::Counted& CommSummary::of(const CommEvent& event) {
  Counted& counted = rows_[Key(event.kind, std::string(event.label))];
  if (counted.row.label.empty()) {
    counted.row.kind = event.kind;
    counted.row.label = event.label;
  }
  return counted;
}

void CommSummary::issued(const CommEvent& event, std::int64_t now) {
  for (Counted* each : {&of(event), &total_}) {
    ++each->row.count;
    each->row.bytes += event.bytes;
  }
  issued_at_[event.id] = now;
  if (event.link != link_ && !event.link.empty()) link_ = event.link;
}

void CommSummary::ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
                        std::int64_t now) {
  if (event.queued) return;
  const auto issue = issued_at_.find(event.id);
  if (issue == issued_at_.end()) return;
  add_exposed(event, {wait_begin, now});
  add_in_flight(event, {issue->second, done});
  issued_at_.erase(issue);
}

// Of collectives whose issue this has seen.
void CommSummary::ran(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  if (issued_at_.erase(event.id) > 0) add_in_flight(event, {begin, end});
}

void CommSummary::stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  if (issued_at_.contains(event.id)) add_exposed(event, {begin, end});
}

void CommSummary::add_exposed(const CommEvent& event, const TimeSet::Interval& time) {
  for (Counted* each : {&total_, &of(event)}) each->row.exposed_ns += each->exposed.add(time);
}

void CommSummary::add_in_flight(const CommEvent& event, const TimeSet::Interval& time) {
  const TimeSet stood_still = total_.exposed.within(time);
  for (Counted* each : {&total_, &of(event)}) {
    each->row.in_flight_ns += each->in_flight.add(time);
    each->row.blocked_ns += each->blocked.add(stood_still);
    forget(*each);
  }
}

void CommSummary::computed(std::string_view, ComputeClass what, std::int64_t begin,
                           std::int64_t end) {
  compute_ns_[static_cast<std::size_t>(what)] += end - begin;
}

std::vector<CommSummary::Row> CommSummary::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, counted] : rows_) rows.push_back(counted.row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.exposed_ns > b.exposed_ns; });
  return rows;
}

double CommSummary::gemm_share(std::int64_t wall_ns) const {
  if (wall_ns <= 0) return 0;
  const std::int64_t inside = compute_ns(ComputeClass::Gemm) + compute_ns(ComputeClass::Attention);
  return static_cast<double>(inside) / static_cast<double>(wall_ns);
}

void CommSummary::merge(const CommSummary& other) {
  if (!other.link_.empty()) link_ = other.link_;
  for (const auto& [key, part] : other.rows_) {
    Row& row = rows_[key].row;
    row.kind = part.row.kind;
    row.label = part.row.label;
    add(row, part.row);
  }
  add(total_.row, other.total_.row);
  for (std::size_t i = 0; i < compute_ns_.size(); ++i) compute_ns_[i] += other.compute_ns_[i];
}

// What is in flight will count from its issue, and so does the time stood still since then.
void CommSummary::reset() {
  rows_.clear();
  total_ = {{CollectiveKind{}, "total"}, {}, std::move(total_.exposed), {}};
  compute_ns_ = {};
}

void print_comm_summary(std::ostream& out, std::span<const CommSummary> tables) {
  CommSummary all;
  for (const CommSummary& table : tables) all.merge(table);
  const double ranks = tables.empty() ? 1 : static_cast<double>(tables.size());
  constexpr auto kLine = "{:<15} {:<22} {:>9} {:>11} {:>8} {:>12} {:>9}\n";
  const auto line = [&](std::string_view op, const CommSummary::Row& row) {
    out << fmt::format(fmt::runtime(kLine), op, row.label,
                       fmt::format("{:.0f}", static_cast<double>(row.count) / ranks),
                       fmt::format("{:.3f}", static_cast<double>(row.bytes) / ranks / 1e6),
                       fmt::format("{:.2f}", row.gigabytes_per_s()),
                       fmt::format("{:.1f}", static_cast<double>(row.exposed_ns) / ranks / 1e6),
                       fmt::format("{:.1f}", row.hidden() * 100));
  };
  if (!all.link().empty()) out << "on an emulated link of " << all.link() << ":\n";
  out << fmt::format(fmt::runtime(kLine), "op", "for", "count", "MB", "GB/s", "exposed ms",
                     "hidden %");
  for (const CommSummary::Row& row : all.rows()) line(to_string(row.kind), row);
  line("all", all.total());
}

}  // namespace coshard
