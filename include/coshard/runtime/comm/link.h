#pragma once
// An emulated link between ranks that are threads of one process: what WorldOptions::link asks for.
// Nothing is slowed down: a collective is merely not complete until its time on the link has
// passed, so that overlap can be shown, and tested, on one machine. A value.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace coshard {

struct Collective;

// A collective takes latency + algorithmic bytes / rate, which is the same for all of its ranks.
struct Link {
  std::chrono::nanoseconds latency{0};
  double bytes_per_second = 0;  // greater than 0

  std::int64_t time_ns(std::int64_t bytes) const;
  bool operator==(const Link&) const = default;
};

// "20us,1GB/s", or the rate alone: a time in ns, us, ms or s, a rate in B/s, KB/s, MB/s, GB/s or
// TB/s (powers of 1000). Error{BadInput} that names the text.
Link parse_link(std::string_view text);
// Error{BadInput} that names the values: a negative latency, a rate that is not above 0.
void check(const Link& link);
std::string to_string(const Link& link);  // "20us,1GB/s"

// What has to pass the link of a rank, for a collective over n ranks of `bytes` (those of the
// largest buffer of any rank): 2 (n-1)/n of them for all_reduce, (n-1)/n for all_gather,
// reduce_scatter, all_to_all and scatter, all of them for broadcast and send, none for barrier.
// Source: the bus bandwidth of nccl-tests, doc/PERFORMANCE.md.
std::int64_t algorithmic_bytes(const Collective& collective, int ranks, std::int64_t bytes);

}  // namespace coshard
