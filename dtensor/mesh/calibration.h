#pragma once
// What calibrate() measures and saves: GEMM times on a grid of shapes, and links. A value of
// integers, so that all ranks hold the same bits. Pure functions; any thread.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/cost/link.h>
#include "runtime/cost/gemm.h"

namespace coshard {

// The time of a large message beyond that of a small one; at least 1/64 of it, since a busy machine
// may have delayed the small one.
inline double time_of_moving(double large, double small) {
  return std::max(large - small, large / 64);
}

struct Calibration {
  // Times of a small, a medium and a large all_gather along one mesh dimension, or of one round of a
  // gather by shards.
  struct Times {
    std::int64_t small_ns = 0, middle_ns = 0, large_ns = 0;
    std::int64_t middle_bytes = 0,
                 large_bytes = 0;       // that each rank receives, less the small one's
    std::int64_t contention_x1024 = 0;  // Link::contention
    // Bandwidth from the large all_gather. Latency: what the medium one takes beyond its bytes, but
    // at least the small one's time; transports may take more steps for its size.
    Link link() const;
    friend bool operator==(const Times&, const Times&) = default;
  };

  std::string about;         // what was measured: one line of the file
  std::vector<Times> links;  // one per mesh dimension; all 0 where it has one rank
  // Of rounds, one per mesh dimension; all 0 where every all_gather brings its shards one by one.
  std::vector<Times> rounds;
  std::vector<GemmTable> products;

  const GemmTable* table(DType dtype) const;  // null: not measured
  std::vector<Link> costs() const;
  // The text of the file, which ends with a hash of all lines before.
  std::string text() const;
  // nullopt if it is not a calibration, is damaged, or is of another version.
  static std::optional<Calibration> parse(std::string_view text);
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

// A hash of any text, below 2^52 so that a double holds it exactly. Never 0.
std::uint64_t text_hash(std::string_view text);

}  // namespace coshard
