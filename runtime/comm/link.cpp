#include <coshard/runtime/comm/link.h>

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

constexpr double kLongest = 1e18;  // ns

}  // namespace

std::int64_t Link::time_ns(std::int64_t bytes) const {
  const double transfer = static_cast<double>(bytes) / bytes_per_second * 1e9;
  return std::llround(std::min(static_cast<double>(latency.count()) + transfer, kLongest));
}

Link parse_link(std::string_view text) {
  const std::size_t comma = text.find(',');
  const std::string_view first = text.substr(0, comma);
  const auto latency = comma == text.npos ? std::optional(0.0) : quantity(first, kTimes);
  const auto rate = quantity(comma == text.npos ? first : text.substr(comma + 1), kRates);
  CS_REQUIRE(latency && rate, "link: expected a latency and a rate such as 20us,1GB/s, got '", text,
             "'");
  CS_REQUIRE(*latency >= 0 && *latency <= kLongest, "link ", text,
             ": the latency must be from 0 to ", kLongest / 1e9, " s");
  CS_REQUIRE(*rate > 0, "link ", text, ": the rate must be above 0");
  return {std::chrono::nanoseconds(std::llround(*latency)), *rate};
}

void check(const Link& link) {
  CS_REQUIRE(link.latency.count() >= 0, "link: the latency must be at least 0, got ",
             link.latency.count(), " ns");
  CS_REQUIRE(link.bytes_per_second > 0 && std::isfinite(link.bytes_per_second),
             "link: the rate must be above 0, got ", link.bytes_per_second, " B/s");
}

std::string to_string(const Link& link) {
  return str_cat(text_of(static_cast<double>(link.latency.count()), kTimes, kTimes.front()), ',',
                 text_of(link.bytes_per_second, kRates, kRates.back()));
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
