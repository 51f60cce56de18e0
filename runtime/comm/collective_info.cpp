#include "runtime/comm/collective_info.h"

#include <fmt/format.h>

#include <algorithm>

#include <coshard/runtime/coro/rank_context.h>
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

// "3.0 s", "1.5 ms", "0.2 us": never "0.0 s" of what is not nothing.
std::string time_text(std::int64_t ns) {
  const auto time = static_cast<double>(ns);
  if (ns >= 50'000'000) return fmt::format("{:.1f} s", time / 1e9);
  return ns >= 50'000 ? fmt::format("{:.1f} ms", time / 1e6) : fmt::format("{:.1f} us", time / 1e3);
}

}  // namespace

CollectiveInfo::CollectiveInfo(const Collective& collective, std::uint64_t of, int rank)
    : kind(collective.kind),
      label(collective.label),
      place{collective.where, collective.operation, collective.module},
      number(of),
      branch(collective.branch),
      world_rank(rank) {}

std::string CollectiveInfo::text(std::string_view on) const {
  return str_cat(to_string(kind), " #", number, " on ", on,
                 label.empty() ? "" : str_cat(" (", label, ")"), location_text(place));
}

std::string CollectiveInfo::timeout_text(std::string_view on, std::int64_t waited_ns,
                                         std::string_view missing) const {
  return str_cat("timeout after ", time_text(waited_ns), " on rank ", world_rank, " waiting for ",
                 text(on), "; ", missing, kIfThatIsRight);
}

std::string CollectiveInfo::late_text(std::string_view on, std::int64_t waited_ns,
                                      std::string_view missing) const {
  return str_cat("rank ", world_rank, " has waited ", time_text(waited_ns), " for ", text(on), "; ",
                 missing, "; it goes on waiting while data move");
}

std::string CollectiveInfo::lost_text(std::string_view on, int lost, std::uint64_t issued) const {
  const std::string after = issued > 0 ? str_cat(" after #", issued - 1)
                                       : str_cat(", having issued no collective on ", on);
  return str_cat("rank ", lost, " left the program", after, "; ", text(on), " still waits for it");
}

PeerFailure CollectiveInfo::poisoned(std::string_view on, std::string_view cause) const {
  return PeerFailure(str_cat(text(on), " on rank ", world_rank, " failed: ", cause));
}

std::string LastIssued::text(std::string_view on) const {
  if (count == 0) return str_cat("has issued no collective on ", on, " yet");
  const std::int64_t now = RankContext::current().parker().now();
  return str_cat("last issued #", count - 1, " ", to_string(kind), " on ", on, " ",
                 time_text(std::max<std::int64_t>(0, now - at_ns)), " ago");
}

std::string called_text(const Collective& collective, int ranks) {
  return str_cat(describe(collective, ranks),
                 collective.label.empty() ? "" : str_cat(" (", collective.label, ")"),
                 collective.names.empty() ? "" : str_cat(" of ", collective.names), " in branch ",
                 collective.branch_path ? *collective.branch_path : "main",
                 location_text(collective));
}

std::string call_text(const Collective& collective, int ranks, int world_rank) {
  return str_cat("rank ", world_rank, " calls ", called_text(collective, ranks));
}

}  // namespace coshard
