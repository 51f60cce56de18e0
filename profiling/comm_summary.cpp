#include <coshard/profiling/comm_summary.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>

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

std::int64_t CommSummary::Covered::add(std::int64_t begin, std::int64_t end) {
  if (end <= begin) return 0;
  const auto first =
      std::ranges::lower_bound(last_, begin, {}, &decltype(last_)::value_type::second);
  auto after = first;
  std::int64_t known = 0, from = begin, to = end;
  for (; after != last_.end() && after->first <= end; ++after) {
    known += std::min(end, after->second) - std::max(begin, after->first);
    from = std::min(from, after->first);
    to = std::max(to, after->second);
  }
  last_.insert(last_.erase(first, after), {from, to});
  return end - begin - known;
}

std::int64_t CommSummary::Covered::add_common(const Covered& other, std::int64_t begin,
                                              std::int64_t end) {
  std::int64_t added = 0;
  auto each =
      std::ranges::lower_bound(other.last_, begin, {}, &decltype(last_)::value_type::second);
  for (; each != other.last_.end() && each->first < end; ++each)
    added += add(std::max(begin, each->first), std::min(end, each->second));
  return added;
}

template <class Earliest>
void CommSummary::Covered::forget(const Earliest& earliest) {
  constexpr std::ptrdiff_t kLeast = 64, kMost = 1 << 16;  // most: if one is never awaited
  if (std::ssize(last_) < look_at_) return;
  const auto from =
      std::ranges::lower_bound(last_, earliest(), {}, &decltype(last_)::value_type::second);
  const std::ptrdiff_t kept = std::clamp(last_.end() - from, kLeast, kMost);
  if (std::ssize(last_) > kept) last_.erase(last_.begin(), last_.end() - kept);
  look_at_ = 2 * kept;
}

void CommSummary::forget(Counted& counted) const {
  const auto earliest = [this] {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const auto& [id, at] : issued_at_) first = std::min(first, at);
    return first;
  };
  for (Covered* each : {&counted.in_flight, &counted.exposed, &counted.blocked})
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
  add_exposed(event, wait_begin, now);
  const auto issue = issued_at_.find(event.id);
  if (issue == issued_at_.end()) return;
  add_in_flight(event, issue->second, done);
  issued_at_.erase(issue);
}

// Of collectives whose issue this has seen.
void CommSummary::ran(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  if (issued_at_.erase(event.id) > 0) add_in_flight(event, begin, end);
}

void CommSummary::stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  if (issued_at_.contains(event.id)) add_exposed(event, begin, end);
}

void CommSummary::add_exposed(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  for (Counted* each : {&total_, &of(event)}) each->row.exposed_ns += each->exposed.add(begin, end);
}

void CommSummary::add_in_flight(const CommEvent& event, std::int64_t begin, std::int64_t end) {
  for (Counted* each : {&total_, &of(event)}) {
    each->row.in_flight_ns += each->in_flight.add(begin, end);
    each->row.blocked_ns += each->blocked.add_common(total_.exposed, begin, end);
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

void CommSummary::reset() {
  rows_.clear();
  total_ = {{CollectiveKind{}, "total"}, {}, {}, {}};
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
