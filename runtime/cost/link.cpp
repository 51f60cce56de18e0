#include <coshard/runtime/cost/link.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

struct Unit {
  std::string_view name;
  double value;
};
// Ordered so that no unit ends with an earlier one.
constexpr std::array<Unit, 4> kTimes{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
constexpr std::array<Unit, 5> kRates{
    {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}, {"B/s", 1}}};

// "1.5GB/s"; nullopt unless it is a finite number and one of the units.
template <std::size_t N>
std::optional<double> quantity(std::string_view text, const std::array<Unit, N>& units) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.name)) continue;
    text.remove_suffix(unit.name.size());
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      return std::nullopt;
    return value * unit.value;
  }
  return std::nullopt;
}

// In the largest unit in which the value is at least 1.
template <std::size_t N>
std::string text_of(double value, const std::array<Unit, N>& units, const Unit& smallest) {
  Unit best = smallest;
  for (const Unit& unit : units)
    if (value >= unit.value && unit.value > best.value) best = unit;
  return str_cat(value / best.value, best.name);
}

constexpr double kLongestNs = 1e18;                    // that the clock holds
constexpr double kMostLatencyUs = 1e15;                // of a link: 1e9 s
constexpr double kLeastRate = 1e-9, kMostRate = 1e15;  // of a link, bytes per us
constexpr double kMostForecastNs = 1e15;     // 11 days, so that sums of forecasts do not overflow
constexpr double kCopyBytesPerUs = 100'000;  // within one rank's memory
// Slicing a replica moves nothing, but a strategy that leaves an input alone is preferred.
constexpr double kLocal = 1e-3;

}  // namespace

std::int64_t Link::latency_ns() const {
  return std::llround(std::min(latency * 1e3, kMostForecastNs));
}
std::int64_t Link::transfer_ns(double bytes) const {
  return std::llround(std::min(bytes / bytes_per_us * 1e3, kMostForecastNs));
}
std::int64_t Link::time_ns(std::int64_t bytes) const {
  const double us = latency + static_cast<double>(bytes) / bytes_per_us;
  return std::llround(std::min(us * 1e3, kLongestNs));
}

Link parse_link(std::string_view text) {
  const std::size_t comma = text.find(',');
  const std::string_view first = text.substr(0, comma);
  const auto latency = comma == text.npos ? std::optional(0.0) : quantity(first, kTimes);
  const auto rate = quantity(comma == text.npos ? first : text.substr(comma + 1), kRates);
  CS_REQUIRE(latency && rate, "link: expected a latency and a rate such as 20us,1GB/s, got '", text,
             "'");
  const Link link = {std::round(*latency) / 1e3, *rate / 1e6};
  check(link, str_cat("link ", text));
  return link;
}

void check(const Link& link, std::string_view about) {
  CS_REQUIRE(link.latency >= 0 && link.latency <= kMostLatencyUs, about,
             ": the latency must be from 0 to 1e9 s, got ", link.latency, " us");
  CS_REQUIRE(link.bytes_per_us >= kLeastRate && link.bytes_per_us <= kMostRate, about,
             ": the rate must be from 0.001 to 1e21 B/s, got ", link.bytes_per_us, " bytes per us");
  CS_REQUIRE(link.contention >= 0 && link.contention <= 1, about,
             ": the contention must be from 0 to 1, got ", link.contention);
}

std::string to_string(const Link& link) {
  return str_cat(text_of(link.latency * 1e3, kTimes, kTimes.front()), ',',
                 text_of(link.bytes_per_us * 1e6, kRates, kRates.back()));
}

Link slowest(std::span<const Link> links, unsigned dims) {
  if (links.empty()) return {};
  Link slow{0, std::numeric_limits<double>::infinity(), 0};
  for (std::size_t m = 0; m < links.size(); ++m) {
    if ((dims >> m & 1U) == 0) continue;
    slow.latency = std::max(slow.latency, links[m].latency);
    slow.bytes_per_us = std::min(slow.bytes_per_us, links[m].bytes_per_us);
    slow.contention = std::max(slow.contention, links[m].contention);
  }
  return slow;
}

double time_of(bool collective, double bytes_moved, double bytes_copied, const Link& link) {
  return (collective ? link.latency : kLocal) + bytes_moved / link.bytes_per_us +
         bytes_copied / kCopyBytesPerUs;
}

std::int64_t algorithmic_bytes(const Collective& collective, int ranks, std::int64_t bytes) {
  // of * (ranks - 1) / ranks, without the product
  const auto but_one = [ranks](std::int64_t of) { return of - (of + ranks - 1) / ranks; };
  switch (collective.kind) {
    case CollectiveKind::AllReduce: return but_one(2 * bytes);
    case CollectiveKind::AllGather:
    case CollectiveKind::ReduceScatter:
    case CollectiveKind::AllToAll:
    case CollectiveKind::Scatter: return but_one(bytes);
    case CollectiveKind::Broadcast:
    case CollectiveKind::Send:
    case CollectiveKind::Recv: return bytes;
    case CollectiveKind::Barrier: return 0;
  }
  return 0;
}

}  // namespace coshard
