#pragma once
// Error texts of every communicator: what is being waited for, which ranks are missing, what
// disagreeing ranks issued. Values and pure functions; any thread. `on` is a communicator: "tp[4]".
#include <cstdint>
#include <string>
#include <string_view>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/observer.h>
#include "runtime/comm/peer_failure.h"

namespace coshard {

// What to do about a timeout of a wait that rightly takes long.
inline constexpr std::string_view kIfThatIsRight =
    "; if it rightly takes that long, hold a longer cs::WaitLimit around the await, or raise "
    "--timeout "
    "where none is held";

// A collective that has been issued and is being waited for.
struct CollectiveInfo {
  CollectiveInfo(const Collective& collective, std::uint64_t number, int world_rank);
  // "all_gather #41 on tp[4] (S(0)->R) at train.cpp:88"
  std::string text(std::string_view on) const;
  // `missing`: "arrived: 0; missing: 1 (...)".
  std::string timeout_text(std::string_view on, std::int64_t waited_ns,
                           std::string_view missing) const;
  // The same for a warning: past the deadline, but data are still moving.
  std::string late_text(std::string_view on, std::int64_t waited_ns,
                        std::string_view missing) const;
  // World rank `lost` left the program after `issued` collectives.
  std::string lost_text(std::string_view on, int lost, std::uint64_t issued) const;
  PeerFailure poisoned(std::string_view on, std::string_view cause) const;

  CollectiveKind kind;
  std::string_view label;
  CallLocation place;
  std::uint64_t number;
  std::uint64_t branch;
  int world_rank;
};

// What a rank last did on a communicator.
struct LastIssued {
  std::uint64_t count = 0;  // collectives it has issued
  CollectiveKind kind{};    // of the last one
  std::int64_t at_ns = 0;   // when, by the ranks' clock

  // "last issued #39 all_reduce on tp[4] 1.7 s ago", "has issued no collective on tp[4] yet"
  std::string text(std::string_view on) const;
};

// "all_reduce sum f32 [4] (S(0)->R) in branch 0.1 at train.cpp:88"
std::string called_text(const Collective& collective, int ranks);
// The same after "rank 3 calls ".
std::string call_text(const Collective& collective, int ranks, int world_rank);

}  // namespace coshard
