#pragma once
// What a collective costs on a link: alpha-beta models, of the best of a few protocols. Values and
// pure functions.
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>

namespace coshard {

// One way of sending. A collective over n ranks takes base + steps x step + bytes / rate, where a
// ring has n-1 steps (all_reduce: twice as many) and the bytes are algorithmic_bytes (link.h).
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

// What a collective needs of a link: a time in which it does not use the rate, and how long it takes
// the whole rate.
struct LinkTime {
  std::int64_t latency_ns = 0, busy_ns = 0;
  std::int64_t total() const { return latency_ns + busy_ns; }
};

// Of the fastest protocol, for what `rank` of `ranks` asks. Of an all_to_all with counts, what it
// sends to others or receives from them passes, in a step for each of them.
LinkTime link_time(const LinkModel& link, const Collective& collective, int ranks, int rank);

}  // namespace coshard
