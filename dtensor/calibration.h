#pragma once
// What calibrate() measures and keeps: times of products on a grid of shapes, links. A value, in
// whole numbers, so that all ranks hold the same bits. Pure functions; any thread.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/redistribute/cost.h>
#include "dtensor/ops/gemm_model.h"

namespace coshard {

// Of the time of a large message, what a small one did not take as well: at the least 1/64 of it, since
// a busy machine may have held up the small one.
inline double time_of_moving(double large, double small) {
  return std::max(large - small, large / 64);
}

struct Calibration {
  // all_gathers along one mesh dimension: of a few bytes, of a common size, and of many.
  struct Times {
    std::int64_t small_ns = 0, middle_ns = 0, large_ns = 0;
    std::int64_t middle_bytes = 0,
                 large_bytes = 0;       // that they bring to each rank beyond the small one
    std::int64_t contention_x1024 = 0;  // LinkCost::contention
    // Its rate is that of many bytes, its latency what the common size takes beyond that: where
    // messages of that size take more steps than small ones, pieces cost more than those say.
    LinkCost link() const;
    friend bool operator==(const Times&, const Times&) = default;
  };

  std::string about;         // of what: one line, part of the file
  std::vector<Times> links;  // one per mesh dimension; all 0 where it has one rank
  std::vector<GemmTable> products;

  const GemmTable* table(DType dtype) const;  // null: not measured
  std::vector<LinkCost> costs() const;
  // As in the file, which ends with a hash of all lines before.
  std::string text() const;
  // nullopt: not a calibration, damaged, or of another version.
  static std::optional<Calibration> parse(std::string_view text);
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

// Of any text, below 2^52, so that a double holds it. Never 0.
std::uint64_t text_hash(std::string_view text);

}  // namespace coshard
