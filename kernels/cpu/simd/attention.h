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
  View first, last;  // of args

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t width() const { return padded(dim); }  // of a packed row of q, k or v
  // Row stride of the scores: not a power of two, which would map all rows to the same cache sets.
  std::int64_t keys_width() const { return padded(tk) + kLanes; }
};

// The keys [begin, end) that a query attends to.
struct Keys {
  std::int64_t begin, end;
};

inline std::int64_t key_of(const View& keys, std::int64_t b, std::int64_t i) {
  return static_cast<const std::int64_t*>(keys.data)[b * keys.strides[0] + i * keys.strides[1]];
}

inline Keys keys_of(const AttentionSizes& n, std::int64_t b, std::int64_t i) {
  Keys keys = {0, n.tk};
  if (n.causal) {
    keys.end = i + n.diagonal + 1;
    if (n.window > 0) keys.begin = keys.end - n.window;
  }
  if (n.first.data) {
    const std::int64_t last = key_of(n.last, b, i);
    keys = {key_of(n.first, b, i), last < n.tk ? last + 1 : n.tk};
  }
  keys.end = keys.end < 0 ? 0 : keys.end > n.tk ? n.tk : keys.end;
  keys.begin = keys.begin < 0 ? 0 : keys.begin > keys.end ? keys.end : keys.begin;
  return keys;
}

// The keys of each query of a block, and those that the block reads: from a whole panel on.
struct BlockKeys {
  Keys rows[kQueryRows];
  std::int64_t count, begin, end;
};

inline BlockKeys block_keys(const AttentionSizes& n, std::int64_t b, std::int64_t first) {
  BlockKeys block;
  block.count = n.tq - first < kQueryRows ? n.tq - first : kQueryRows;
  block.begin = n.tk;
  block.end = 0;
  for (std::int64_t r = 0; r < block.count; ++r) {
    const Keys keys = block.rows[r] = keys_of(n, b, first + r);
    if (keys.begin < keys.end && keys.begin < block.begin) block.begin = keys.begin;
    if (keys.begin < keys.end && keys.end > block.end) block.end = keys.end;
  }
  block.begin = (block.begin < block.end ? block.begin : block.end) / kPanel * kPanel;
  for (std::int64_t r = 0; r < block.count; ++r)  // which sees nothing
    if (block.rows[r].begin >= block.rows[r].end) block.rows[r] = {block.begin, block.begin};
  return block;
}

template <class Args>
AttentionSizes attention_sizes(const Args& args) {
  const View& q = args.q;
  const View& k = args.k;
  return {q.shape[0],  q.shape[1],    k.shape[1],
          q.shape[2],  k.shape[2],    q.shape[3],
          args.causal, args.diagonal, args.causal ? args.window : 0,
          args.first,  args.last};
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

// Hides the keys before the first of each row from it.
inline void hide_before_first(const BlockKeys& keys, Real* scores, std::int64_t wide) {
  for (std::int64_t r = 0; r < keys.count; ++r)
    for (std::int64_t j = keys.begin; j < keys.rows[r].begin; ++j) scores[r * wide + j] = -kInf;
}

// Sets scores [keys, width) of a row to 0, after [0, keys) was written in whole registers.
COSHARD_INLINE void hide_rest(Real* scores, std::int64_t keys, std::int64_t width) {
  for (std::int64_t i = (keys + kLanes - 1) / kLanes * kLanes; i < width; i += kLanes) {
    store(scores + i, Vec{});
  }
}

// out[rows, dim] = scores[rows, ..] b, a few rows at a time, each group only over the keys visible
// to one of its rows, from the block's first on.
inline void multiply_seen(const BlockKeys& keys, std::int64_t dim, const Product& p) {
  for (std::int64_t r = 0; r < keys.count; r += kTileRows) {
    const std::int64_t some = keys.count - r < kTileRows ? keys.count - r : kTileRows;
    std::int64_t end = keys.begin;
    for (std::int64_t i = r; i < r + some; ++i)
      if (keys.rows[i].end > end) end = keys.rows[i].end;
    Product part = p;
    part.a += r * p.a_row + keys.begin * p.a_column;
    part.b += keys.begin * p.b_row;
    part.c += r * p.c_row;
    multiply(part, some, dim, end - keys.begin);
  }
}

// The rows of head h from row t on.
COSHARD_INLINE StoredRows rows_of(const View& v, std::int64_t b, std::int64_t h, std::int64_t t) {
  const std::int64_t at = b * v.strides[0] + h * v.strides[1] + t * v.strides[2];
  return {v.dtype, element_at(v.dtype, v.data, at), v.strides[2]};
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
