#pragma once
// The training text, as bytes: what is trained on and what is held out. Read once in main; shared,
// unchanged, by all ranks.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coshard::train {

constexpr std::size_t kBlock = 4096;  // bytes
constexpr std::size_t kHoldOut = 20;  // the last of every twenty blocks is held out

// One step's input, row-major [batch, seq]; `targets` is the byte after each of `tokens`.
struct Batch {
  std::vector<double> tokens, targets;
};

class Text {
 public:
  // Error{BadInput}: no such file (for the default text: how to make it), an empty one, or one that
  // holds no training sequence of seq + 1 bytes.
  Text(const std::string& path, int seq);

  const std::string& bytes() const { return bytes_; }
  std::size_t held_out_blocks() const { return bytes_.size() / kBlock / kHoldOut; }
  // Where held-out block i begins.
  std::size_t held_out_begin(std::size_t i) const { return ((i + 1) * kHoldOut - 1) * kBlock; }
  // The `batch` sequences of a step, none of which touches a held-out block. They depend on seed and
  // step alone (Philox), so a training that is resumed sees what it would have seen.
  Batch draw(std::uint64_t seed, std::uint64_t step, int batch) const;

 private:
  std::string bytes_;
  std::size_t seq_;
  struct Run {
    std::size_t begin;
    std::size_t starts;  // how many sequences may start from `begin` on
  };
  std::vector<Run> runs_;
  std::size_t starts_ = 0;
};

}  // namespace coshard::train
