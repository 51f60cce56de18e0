#pragma once
// Shapes and pointers shared by the attention forward and backward. Only included by the sources of
// this directory.
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/tile.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

constexpr std::int64_t kQueryRows = 32;  // queries per block

struct AttentionSizes {
  std::int64_t batch, heads, kv_heads, tq, tk, dim;
  bool causal;
  std::int64_t diagonal, window;

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t width() const { return padded(dim); }  // of a packed row of q, k or v
  // Row stride of the scores: not a power of two, which would map all rows to the same cache sets.
  std::int64_t keys_width() const { return padded(tk) + kLanes; }
  // The number of keys that query i attends to.
  std::int64_t visible(std::int64_t i) const {
    if (!causal) return tk;
    const std::int64_t keys = i + diagonal + 1;
    return keys < 0 ? 0 : keys > tk ? tk : keys;
  }
  // The first of them.
  std::int64_t first_key(std::int64_t i) const {
    if (window == 0) return 0;
    const std::int64_t key = i + diagonal + 1 - window;
    return key < 0 ? 0 : key > tk ? tk : key;
  }
  // Where a block of queries from i on begins to read: a whole panel.
  std::int64_t begin(std::int64_t i) const { return first_key(i) / kPanel * kPanel; }
};

template <class Args>
AttentionSizes attention_sizes(const Args& args) {
  const View& q = args.q;
  const View& k = args.k;
  return {q.shape[0],  q.shape[1],    k.shape[1],
          q.shape[2],  k.shape[2],    q.shape[3],
          args.causal, args.diagonal, args.causal ? args.window : 0};
}

// Adds keys [0, keys) of the mask's rows [first, first + rows) to their scores.
[[gnu::noinline]] inline void add_mask(const View& mask, std::int64_t b, std::int64_t h,
                                       std::int64_t first, std::int64_t rows, std::int64_t keys,
                                       Real* scores, std::int64_t wide) {
  const std::int64_t begin = b * mask.strides[0] + h * mask.strides[1];
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = begin + (first + r) * mask.strides[2];
    Real* score = scores + r * wide;
    if (mask.dtype == DType::Bool) {
      const bool* keep = static_cast<const bool*>(mask.data) + row;
      for (std::int64_t j = 0; j < keys; ++j)
        if (!keep[j * mask.strides[3]]) score[j] = -kInf;
    } else {
      with_stored(mask.dtype, [&](auto tag) {
        const auto* bias = static_cast<const decltype(tag)*>(mask.data) + row;
        for (std::int64_t j = 0; j < keys; ++j)
          score[j] += static_cast<Real>(bias[j * mask.strides[3]]);
      });
    }
  }
}

// Hides the keys before the windows of the rows from those.
inline void hide_before_window(const AttentionSizes& n, std::int64_t first, std::int64_t rows,
                               Real* scores, std::int64_t wide) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = n.begin(first); j < n.first_key(first + r); ++j)
      scores[r * wide + j] = -kInf;
}

// Sets scores [keys, width) of a row to 0, after [0, keys) was written in whole registers.
COSHARD_INLINE void hide_rest(Real* scores, std::int64_t keys, std::int64_t width) {
  for (std::int64_t i = (keys + kLanes - 1) / kLanes * kLanes; i < width; i += kLanes) {
    store(scores + i, Vec{});
  }
}

// out[rows, dim] = scores[rows, ..] b, a few rows at a time, each group only over the keys visible
// to its last row, from the block's first on.
inline void multiply_seen(const AttentionSizes& n, std::int64_t first, std::int64_t rows,
                          const Product& p) {
  for (std::int64_t r = 0; r < rows; r += kTileRows) {
    const std::int64_t some = rows - r < kTileRows ? rows - r : kTileRows;
    Product part = p;
    part.a += r * p.a_row;
    part.c += r * p.c_row;
    const std::int64_t begin = n.begin(first);
    part.a += begin * p.a_column;
    part.b += begin * p.b_row;
    multiply(part, some, n.dim, n.visible(first + r + some - 1) - begin);
  }
}

// The rows of head h from row t on.
COSHARD_INLINE StoredRows rows_of(const View& v, std::int64_t b, std::int64_t h, std::int64_t t) {
  const std::int64_t at = b * v.strides[0] + h * v.strides[1] + t * v.strides[2];
  return {v.dtype, element_at(v.dtype, v.data, at), v.strides[2]};
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
