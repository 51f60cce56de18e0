#pragma once
// Frequencies of rotary positions as data, for rotary_embedding. A value; any thread.
#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)
namespace coshard {
namespace kernels {
struct RopeTable;
}

// The angle of position p and pair i is p * frequencies[i], rounded to f32; its cosine and sine are
// multiplied by `scaling` and rounded to f32: what transformers computes, for any type of x. Equal
// tables share memory, which is kept for the process: make one per model, not one per call.
class RotaryTable {
 public:
  // frequencies: [dim / 2], in radians per position. Error{BadInput}: none, or one that is not
  // finite.
  explicit RotaryTable(std::vector<float> frequencies, double scaling = 1);

  std::span<const float> frequencies() const;
  double scaling() const;
  // Of RotaryEmbeddingAttrs; equal for equal tables, within the process.
  std::int64_t key() const { return reinterpret_cast<std::intptr_t>(table_); }

  friend bool operator==(const RotaryTable& a, const RotaryTable& b) = default;

 private:
  const kernels::RopeTable* table_;
};

}  // namespace coshard
#pragma GCC visibility pop
