#pragma once
// What a collective costs on a link, by latency and bandwidth: one value for the planner, the gate of
// overlapped layers, forecasts, and links that are emulated between threads (WorldOptions::link).
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace coshard {

struct Collective;

// The link of a collective, as of one mesh dimension. A collective takes latency + bytes / rate,
// where the bytes are those that pass a rank's link (algorithmic_bytes). On an emulated link nothing
// is slowed down: a collective just does not complete before, equally for all of its ranks, so that
// overlap can be shown and tested on one machine. The values that a Link has by default stand for one
// that is not known: only ratios matter then.
struct Link {
  double latency = 5;            // us, from 0 to 1e15
  double bytes_per_us = 10'000;  // from 1e-9 to 1e15; 10'000 is 10 GB/s
  // The slowdown of concurrent GEMMs, as a share of the collective's time: 0 where it is fully
  // hidden, 1 where it is not hidden at all, as where the cores that compute also move the data.
  double contention = 0;

  // Whole ns, so that all ranks round alike; cut where a sum would overflow.
  std::int64_t latency_ns() const;
  std::int64_t transfer_ns(double bytes) const;    // without latency
  std::int64_t time_ns(std::int64_t bytes) const;  // with it
  friend bool operator==(const Link&, const Link&) = default;
};

// Parses "20us,1GB/s", or the rate alone: a time in ns, us, ms or s; a rate in B/s, KB/s, MB/s,
// GB/s or TB/s (powers of 1000). Error{BadInput} quotes the text.
Link parse_link(std::string_view text);
// Error{BadInput}: a latency that is not from 0 to 1e9 s, a rate that is not from 0.001 to 1e21 B/s, a
// contention that is not from 0 to 1; names the value, after `about`.
void check(const Link& link, std::string_view about = "link");
std::string to_string(const Link& link);  // "20us,1GB/s"

// For a collective over several mesh dimensions (bit m: dimension m): as slow as the slowest of
// them. No links: Link().
Link slowest(std::span<const Link> links, unsigned dims);

// One step of a plan, us: whether it issues a collective, the bytes that the busiest rank receives,
// and those it copies in its own memory (packing, unpacking, filling with zeros).
double time_of(bool collective, double bytes_moved, double bytes_copied, const Link& link = {});

// The bytes that pass a rank's link, for a collective over n ranks with buffers of `bytes` (the
// largest of any rank): 2 (n-1)/n of them for all_reduce; (n-1)/n for all_gather, reduce_scatter,
// all_to_all and scatter; all for broadcast and send; none for barrier. Source: bus bandwidth in
// nccl-tests, doc/PERFORMANCE.md. For an all_to_all with counts, whose blocks may be uneven: what
// the busiest rank sends to others.
std::int64_t algorithmic_bytes(const Collective& collective, int ranks, std::int64_t bytes);

}  // namespace coshard
#pragma GCC visibility pop
