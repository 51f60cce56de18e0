#pragma once
// The cost of a collective on a link: alpha-beta models, one per protocol, of which the fastest
// counts. Values and pure functions.
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// One protocol. A collective over n ranks takes base + steps x step + bytes / rate, where a ring
// has n-1 steps (all_reduce: twice as many) and the bytes are algorithmic_bytes (link.h).
struct LinkProtocol {
  double base_ns = 0, step_ns = 0;
  double rate = 0;  // bytes/s
};

// The link of a communicator. Collectives of communicators with equal names share the rate.
struct LinkModel {
  std::string name;  // "nvlink4"
  std::vector<LinkProtocol> protocols;

  double best_rate() const;  // bytes/s of the fastest protocol
};

// The time a collective takes on a link: the latency, during which it uses no bandwidth, and the
// time at the full rate.
struct LinkTime {
  std::int64_t latency_ns = 0, busy_ns = 0;
  std::int64_t total() const { return latency_ns + busy_ns; }
};

// The time of `collective` with the fastest protocol, as issued by `rank` of `ranks`. For an
// all_to_all with counts: the larger of the bytes it sends to and receives from others, and one
// step for each such peer.
LinkTime link_time(const LinkModel& link, const Collective& collective, int ranks, int rank);

}  // namespace coshard
