#pragma once
// An emulated link between ranks that are threads of one process (WorldOptions::link). Nothing is
// slowed down: a collective just does not complete until its time on the link has passed, so that
// overlap can be shown and tested on one machine. A value.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace coshard {

struct Collective;

// A collective takes latency + algorithmic bytes / rate, equal for all of its ranks.
struct Link {
  std::chrono::nanoseconds latency{0};
  double bytes_per_second = 0;  // above 0

  std::int64_t time_ns(std::int64_t bytes) const;
  bool operator==(const Link&) const = default;
};

// Parses "20us,1GB/s", or the rate alone: a time in ns, us, ms or s; a rate in B/s, KB/s, MB/s,
// GB/s or TB/s (powers of 1000). Error{BadInput} quotes the text.
Link parse_link(std::string_view text);
// Error{BadInput} for a negative latency or a rate that is not above 0; names the values.
void check(const Link& link);
std::string to_string(const Link& link);  // "20us,1GB/s"

// The bytes that pass a rank's link, for a collective over n ranks with buffers of `bytes` (the
// largest of any rank): 2 (n-1)/n of them for all_reduce; (n-1)/n for all_gather, reduce_scatter,
// all_to_all and scatter; all for broadcast and send; none for barrier. Source: bus bandwidth in
// nccl-tests, doc/PERFORMANCE.md. For an all_to_all with counts, whose blocks may be uneven: what
// the busiest rank sends to others.
std::int64_t algorithmic_bytes(const Collective& collective, int ranks, std::int64_t bytes);

}  // namespace coshard
#pragma GCC visibility pop
