#pragma once
// Attention tiles without tensor cores, for f32 and f64, and for all dtypes where a window or
// ranges hide keys. A block of 128 threads keeps a tile of rows (queries in forward, keys for their gradients)
// and iterates over tiles of columns: thread (y, x) = (thread / 16, thread % 16) owns the scores of
// rows y + 8 r with columns x + 16 c, and the 16-byte vectors x + 16 p of the same rows' results.
// Operands are stored widened in shared memory, zero-padded to kDim and by 16 bytes per row (so
// that 8 rows at one column hit all banks). Used by attention.cu and attention_grad.cu.
#include <cmath>
#include <type_traits>

#include "kernels/cuda/attention.h"

namespace coshard::kernels::cuda {

constexpr int kAttentionThreads = 128;

CS_BODY float attention_exp(float x) { return ::expf(x); }
CS_BODY double attention_exp(double x) { return ::exp(x); }
CS_BODY float attention_log(float x) { return ::logf(x); }
CS_BODY double attention_log(double x) { return ::log(x); }

template <class T, int dim>
struct AttentionTile {
  using W = Wide<T>;
  static constexpr int kDim = dim;  // at least the dims of q, k and v
  static constexpr int kVector = 16 / static_cast<int>(sizeof(W));
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(T));
  static constexpr int kStride = kDim + kVector;
  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(W));
  static constexpr int kTall = kRowBytes > 512 ? 2 : 4;  // rows per thread
  static constexpr int kBroad = kRowBytes > 512 ? 1 : kRowBytes > 256 ? 2 : 4;
  static constexpr int kRows = 8 * kTall;
  static constexpr int kColumns = 16 * kBroad;
  static constexpr int kPitch = kColumns + 1;  // of a tile of products
  static constexpr int kParts = kDim / (16 * kVector);
  static constexpr int kRowTile = kRows * kStride;  // elements
  static constexpr int kColumnTile = kColumns * kStride;
  static constexpr int kProductTile = kRows * kPitch;

  struct alignas(16) Vector {
    W at[kVector];
  };
  using Products = W[kTall][kBroad];
  struct Results {
    Vector at[kTall][kParts];
  };

  // Loads rows from `first` on of head (b, h), which has `end` rows of `width` elements; the rest
  // of `rows` x kDim is set to 0.
  CS_BODY static void load(Block& block, W* to, int rows, const HeadRows<const T>& from,
                           std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t end,
                           int width) {
    if (from.pieces && width % kPiece == 0) {
      load_pieces<kPiece>(block, to, rows, from.at(b, h, first), from.row, end - first, width);
    } else {
      load_pieces<1>(block, to, rows, from.at(b, h, first), from.row, end - first, width);
    }
  }

  template <int piece>
  CS_BODY static void load_pieces(Block& block, W* to, int rows, const T* from, std::int64_t stride,
                                  std::int64_t count, int width) {
    struct alignas(piece * sizeof(T)) Piece {
      T at[piece];
    };
    for (int e = block.thread() * piece; e < rows * kDim; e += kAttentionThreads * piece) {
      const int row = e / kDim;
      const int column = e % kDim;
      Piece in{};
      if (row < count && column < width)
        in = *reinterpret_cast<const Piece*>(from + row * stride + column);
      W* at = to + row * kStride + column;
      CS_UNROLL
      for (int i = 0; i < piece; ++i) at[i] = widen(in.at[i]);
    }
  }

  // products = rows . columns^T
  CS_BODY static void multiply(Block& block, Products& products, const W* rows, const W* columns,
                               int width) {
    const int x = block.thread() % 16;
    const int y = block.thread() / 16;
    CS_UNROLL
    for (int r = 0; r < kTall; ++r) {
      CS_UNROLL
      for (int c = 0; c < kBroad; ++c) products[r][c] = W(0);
    }
    for (int d = 0; d < width; d += kVector) {
      Vector a[kTall], b[kBroad];
      CS_UNROLL
      for (int r = 0; r < kTall; ++r) a[r] = vector(rows + (y + 8 * r) * kStride + d);
      CS_UNROLL
      for (int c = 0; c < kBroad; ++c) b[c] = vector(columns + (x + 16 * c) * kStride + d);
      CS_UNROLL
      for (int r = 0; r < kTall; ++r) {
        CS_UNROLL
        for (int c = 0; c < kBroad; ++c) {
          CS_UNROLL
          for (int e = 0; e < kVector; ++e) products[r][c] += a[r].at[e] * b[c].at[e];
        }
      }
    }
  }

  CS_BODY static void store(Block& block, W* tile, const Products& products) {
    const int x = block.thread() % 16;
    const int y = block.thread() / 16;
    CS_UNROLL
    for (int r = 0; r < kTall; ++r) {
      CS_UNROLL
      for (int c = 0; c < kBroad; ++c) tile[(y + 8 * r) * kPitch + x + 16 * c] = products[r][c];
    }
  }

  // results += the tile of products . columns
  CS_BODY static void accumulate(Block& block, Results& results, const W* products,
                                 const W* columns) {
    const int x = block.thread() % 16;
    const int y = block.thread() / 16;
    for (int j = 0; j < kColumns; ++j) {
      Vector b[kParts];
      CS_UNROLL
      for (int p = 0; p < kParts; ++p)
        b[p] = vector(columns + j * kStride + (x + 16 * p) * kVector);
      CS_UNROLL
      for (int r = 0; r < kTall; ++r) {
        const W a = products[(y + 8 * r) * kPitch + j];
        CS_UNROLL
        for (int p = 0; p < kParts; ++p) {
          CS_UNROLL
          for (int e = 0; e < kVector; ++e) results.at[r][p].at[e] += a * b[p].at[e];
        }
      }
    }
  }

  // Writes the thread's part of the results, times factor[r] for row r.
  CS_BODY static void write(Block& block, const Results& results, const W (&factor)[kTall], T* to,
                            std::int64_t stride, std::int64_t count, int width) {
    const int x = block.thread() % 16;
    const int y = block.thread() / 16;
    CS_UNROLL
    for (int r = 0; r < kTall; ++r) {
      if (y + 8 * r >= count) continue;
      CS_UNROLL
      for (int p = 0; p < kParts; ++p) {
        CS_UNROLL
        for (int e = 0; e < kVector; ++e) {
          const int column = (x + 16 * p) * kVector + e;
          if (column < width)
            to[(y + 8 * r) * stride + column] = static_cast<T>(results.at[r][p].at[e] * factor[r]);
        }
      }
    }
  }

  CS_BODY static Vector vector(const W* at) { return *reinterpret_cast<const Vector*>(at); }
};

// Those of a call where each query of each batch row has a first key: of a window, or as given.
struct KeyRanges : AttentionSizes {
  std::int64_t window;  // of a causal call
  const std::int64_t* first;
  const std::int64_t* last;  // null: the window counts
  std::int64_t first_strides[2], last_strides[2];

  CS_BODY static std::int64_t within(std::int64_t key, std::int64_t end) {
    return key < 0 ? 0 : key > end ? end : key;
  }
  CS_BODY std::int64_t begin(std::int64_t b, std::int64_t i) const {
    if (first == nullptr) return within(i + diagonal + 1 - window, tk);
    return within(first[b * first_strides[0] + i * first_strides[1]], tk);
  }
  CS_BODY std::int64_t end(std::int64_t b, std::int64_t i) const {
    if (last == nullptr) return visible(i);
    const std::int64_t key = last[b * last_strides[0] + i * last_strides[1]];
    return key < tk ? within(key + 1, tk) : tk;
  }
  // The end of the queries that attend to key j.
  CS_BODY std::int64_t query_end(std::int64_t j) const {
    return first != nullptr ? tq : within(j - diagonal + window, tq);
  }
};

// Without them, with AttentionSizes alone, kernels compute and keep nothing for them.
template <class Keys>
constexpr bool kHasRanges = std::is_same_v<Keys, KeyRanges>;

// The keys [begin, end) that a query attends to.
template <class Keys>
CS_BODY std::int64_t key_begin(const Keys& n, std::int64_t b, std::int64_t i) {
  if constexpr (kHasRanges<Keys>)
    return n.begin(b, i);
  else
    return 0;
}
template <class Keys>
CS_BODY std::int64_t key_end(const Keys& n, std::int64_t b, std::int64_t i) {
  if constexpr (kHasRanges<Keys>)
    return n.end(b, i);
  else
    return n.visible(i);
}

// Whether query i attends to key j >= 0. A comparison more takes registers that spill.
template <class Keys>
CS_BODY bool attends_to(const Keys& n, std::int64_t b, std::int64_t i, std::int64_t j) {
  if constexpr (kHasRanges<Keys>)
    return n.begin(b, i) <= j && j < n.end(b, i);
  else
    return j < n.visible(i);
}

// Those that one of the queries [from, to) attends to.
template <class Keys>
CS_BODY std::int64_t tile_key_begin(const Keys& n, std::int64_t b, std::int64_t from,
                                    std::int64_t to) {
  std::int64_t key = key_begin(n, b, from);
  if constexpr (kHasRanges<Keys>)
    for (std::int64_t i = from + 1; i < to; ++i) key = n.begin(b, i) < key ? n.begin(b, i) : key;
  return key;
}
template <class Keys>
CS_BODY std::int64_t tile_key_end(const Keys& n, std::int64_t b, std::int64_t from,
                                  std::int64_t to) {
  std::int64_t key = key_end(n, b, to - 1);
  if constexpr (kHasRanges<Keys>)
    for (std::int64_t i = from; i < to - 1; ++i) key = n.end(b, i) > key ? n.end(b, i) : key;
  return key;
}

// Whether a window or ranges hide a key that the last query would see without them.
template <class Args>
bool hides_keys(const AttentionSizes& n, const Args& args) {
  return args.first.data != nullptr ||
         (n.causal && args.window > 0 && args.window < n.tq + n.diagonal);
}

template <class Args>
KeyRanges key_ranges(const AttentionSizes& n, const Args& args) {
  KeyRanges ranges{};
  static_cast<AttentionSizes&>(ranges) = n;
  ranges.window = args.window;
  ranges.first = static_cast<const std::int64_t*>(args.first.data);
  ranges.last = static_cast<const std::int64_t*>(args.last.data);
  for (int d = 0; d < 2; ++d) {
    ranges.first_strides[d] = args.first.strides[d];
    ranges.last_strides[d] = args.last.strides[d];
  }
  return ranges;
}

// Calls f(T{}, tile, keys): for f32 and f64 the smallest tile that fits the heads, and AttentionSizes;
// if keys are hidden, for every dtype the widest one, which saves compile time, and KeyRanges.
template <class Args, class F>
void with_attention_tile(const Args& args, const AttentionSizes& n, F&& f) {
  with_floating(args.q.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (hides_keys(n, args)) return f(tag, AttentionTile<T, 256>{}, key_ranges(n, args));
    if constexpr (!is_short_float<T>) {
      const int width = std::max(n.dim, n.value_dim);
      if (width <= 64) return f(tag, AttentionTile<T, 64>{}, AttentionSizes{n});
      if (width <= 128) return f(tag, AttentionTile<T, 128>{}, AttentionSizes{n});
      return f(tag, AttentionTile<T, 256>{}, AttentionSizes{n});
    }
  });
}

}  // namespace coshard::kernels::cuda
