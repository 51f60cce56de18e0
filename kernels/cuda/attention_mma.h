#pragma once
// Attention tiles for tensor cores: [rows, kDim] of bf16 or f16 in shared memory, heads zero-padded
// to kDim. Their 16-byte pieces are swizzled, so that the eight rows of a matrix that ldmatrix
// reads, and those that fragments are stored to, fall into different banks. Each warp owns 16 kM
// rows of a tile and keeps their results in fragments (after Dao 2023, FlashAttention-2). Used by
// the attention_mma*.cu files.
#include <bit>

#include <coshard/runtime/device/buffer.h>
#include "kernels/cuda/attention.h"
#include "runtime/device/cuda/fragment.h"

#if defined(__CUDACC__)
#define CS_UNROLL_SOME _Pragma("unroll 4")  // where full unrolling would be too much code
#define CS_ROLLED _Pragma("unroll 1")       // a loop that is seldom taken
#else
#define CS_UNROLL_SOME
#define CS_ROLLED
#endif

namespace coshard::kernels::cuda {

constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;
constexpr float kInfinity = HUGE_VALF;
constexpr std::size_t kSharedOfEvery =
    99 * 1024;  // bytes available to a block on any sm_80 or later

// Returns x, opaque to the compiler: values derived from it are recomputed in each iteration of a
// loop, instead of occupying registers that the fragments need.
CS_BODY int afresh(int x) {
#if defined(__CUDACC__)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// Makes a warp-uniform value uniform to the compiler: it is kept in uniform registers, and branches
// on it do not diverge.
template <class X>
CS_BODY X alike(Block& block, X x) {
  static_assert(sizeof(X) % sizeof(int) == 0 && std::is_trivially_copyable_v<X>);
  int words[sizeof(X) / sizeof(int)];
  std::memcpy(words, &x, sizeof x);
  CS_UNROLL
  for (int& word : words) word = block.shuffle(word, 0);
  std::memcpy(&x, words, sizeof x);
  return x;
}

// T: BFloat16 or Float16; dim: a multiple of 32; warps: of the block.
template <class T, int dim, int warps>
struct MmaTile {
  static constexpr int kDim = dim;
  static constexpr int kThreads = warps * kWarp;
  static constexpr int kPieces = kDim / 8;  // per row
  // Pieces are permuted within groups of this many elements.
  static constexpr int kGroup = kDim % 64 == 0 ? 64 : 32;
  struct alignas(16) Piece {
    T at[8];
  };

  // XORed with the index of a piece. Only every other row of 32 (2 n + 1) elements begins in the
  // same bank.
  CS_BODY static int swizzle(int row) { return kGroup == 64 ? row % 8 : row / 2 % 4; }
  CS_BODY static T* piece(T* tile, int row, int piece) {
    return tile + row * kDim + (piece ^ swizzle(row)) * 8;
  }

  // Starts copying rows [0, rows), of which `count` exist with `width` elements; the rest is set to
  // 0. `whole`: rows may be read in pieces. at(row): the start of a row.
  template <int rows, class At>
  CS_BODY static void copy(Block& block, T* to, int count, int width, bool whole, At&& at) {
    constexpr int kStep = static_cast<int>(std::bit_floor(unsigned{kThreads / kPieces}));
    static_assert(rows % kStep == 0);
    const int thread = afresh(block.thread());
    const int first = thread / kPieces;
    const int p = thread % kPieces;
    if (first >= kStep) return;
    if (whole) {
      CS_UNROLL_SOME
      for (int i = 0; i < rows; i += kStep) {
        const int row = first + i;
        block.copy16(piece(to, row, p), at(row) + p * 8, row < count && p * 8 < width);
      }
      return;
    }
    CS_ROLLED
    for (int row = first; row < rows; row += kStep) {
      const int there = row < count ? width - p * 8 : 0;
      Piece in{};
      CS_UNROLL
      for (int e = 0; e < 8; ++e)
        if (e < there) in.at[e] = at(row)[p * 8 + e];
      *reinterpret_cast<Piece*>(piece(to, row, p)) = in;
    }
  }
  template <int rows>
  CS_BODY static void copy(Block& block, T* to, const HeadRows<const T>& from, int b, int h,
                           int first, int end, int width) {
    const T* begin = from.at(b, h, first);
    copy<rows>(block, to, end - first, width, from.pieces && width % 8 == 0,
               [&](int row) { return begin + row * from.row; });
  }

  // Where a lane reads, as an element offset in the tile: row lane % 16 of two adjacent pieces, or
  // (across) row lane % 8 of two adjacent pieces, then the same for the eight rows below. along()
  // advances by `e` elements within the rows, e a multiple of 16; lower rows are at `+ row * kDim`,
  // row a multiple of 8.
  CS_BODY static int lane_offset(int lane) {
    return lane % 16 * kDim + ((lane / 16) ^ swizzle(lane % 16)) * 8;
  }
  CS_BODY static int across_offset(int lane) {
    return (lane % 8 + lane / 16 * 8) * kDim + ((lane / 8 % 2) ^ swizzle(lane % 8)) * 8;
  }
  CS_BODY static int along(int offset, int e) {
    return (offset ^ (e % kGroup)) + e / kGroup * kGroup;
  }

  // c[m][n] += a[row + 16 m ...] . b[8 n ...]^T, over kDim. b: 8 kN rows.
  template <int kM, int kN>
  CS_BODY static void multiply_transposed(Block& block, FragmentC (&c)[kM][kN], const T* a, int row,
                                          const T* b) {
    const int lane = afresh(block.lane());
    const int from_a = row * kDim + lane_offset(lane);
    const int from_b = across_offset(lane);
    CS_UNROLL
    for (int k = 0; k < kDim; k += 16) {
      FragmentA fa[kM];
      CS_UNROLL
      for (int m = 0; m < kM; ++m) {
        const FourMatrices four = load_matrices(block, a + along(from_a, k) + 16 * m * kDim);
        fa[m] = {{four.at[0], four.at[1], four.at[2], four.at[3]}};
      }
      CS_UNROLL
      for (int n = 0; n < kN; n += 2) {
        const FourMatrices four = load_matrices(block, b + along(from_b, k) + 8 * n * kDim);
        CS_UNROLL
        for (int m = 0; m < kM; ++m) {
          multiply_add<T>(block, c[m][n], fa[m], {{four.at[0], four.at[1]}});
          multiply_add<T>(block, c[m][n + 1], fa[m], {{four.at[2], four.at[3]}});
        }
      }
    }
  }

  // c[m][n] += a[m] . b, where a holds results rounded to T, [16, 8 kN], and b has 8 kN rows.
  template <int kM, int kN>
  CS_BODY static void multiply(Block& block, FragmentC (&c)[kM][kDim / 8],
                               const FragmentC (&a)[kM][kN], const T* b) {
    const int from_b = lane_offset(afresh(block.lane()));
    CS_UNROLL
    for (int k = 0; k < kN / 2; ++k) {
      FragmentA fa[kM];
      CS_UNROLL
      for (int m = 0; m < kM; ++m) fa[m] = rounded(a[m][2 * k], a[m][2 * k + 1]);
      CS_UNROLL
      for (int n = 0; n < kPieces; n += 2) {
        const FourMatrices four =
            load_matrices_transposed(block, b + along(from_b, 8 * n) + 16 * k * kDim);
        CS_UNROLL
        for (int m = 0; m < kM; ++m) {
          multiply_add<T>(block, c[m][n], fa[m], {{four.at[0], four.at[1]}});
          multiply_add<T>(block, c[m][n + 1], fa[m], {{four.at[2], four.at[3]}});
        }
      }
    }
  }

  // Two adjacent result fragments as one operand fragment: the layouts agree.
  CS_BODY static FragmentA rounded(const FragmentC& left, const FragmentC& right) {
    return {{pack<T>(left.at[0], left.at[1]), pack<T>(left.at[2], left.at[3]),
             pack<T>(right.at[0], right.at[1]), pack<T>(right.at[2], right.at[3])}};
  }

  // Writes the warp's rows [row, row + 16 kM) of a tile, times factor[m][row half], staged in the
  // same rows of `stage`, which must be free. `count` rows exist; at(row): the start of a row.
  template <int kM, class At>
  CS_BODY static void write(Block& block, const FragmentC (&c)[kM][kDim / 8],
                            const float (&factor)[kM][2], T* stage, int row, int count, int width,
                            bool whole, At&& at) {
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int n = 0; n < kPieces; ++n) {
        CS_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float f = factor[m][half];
          T* to =
              piece(stage, row + 16 * m + 8 * half + block.lane() / 4, n) + block.lane() % 4 * 2;
          *reinterpret_cast<std::uint32_t*>(to) =
              pack<T>(c[m][n].at[2 * half] * f, c[m][n].at[2 * half + 1] * f);
        }
      }
    }
    block.warp_barrier();
    for (int e = block.lane(); e < 16 * kM * kPieces; e += kWarp) {
      const int r = row + e / kPieces;
      const int p = e % kPieces;
      if (r >= count || p * 8 >= width) continue;
      const Piece from = *reinterpret_cast<const Piece*>(piece(stage, r, p));
      T* to = at(r) + p * 8;
      if (whole) {
        *reinterpret_cast<Piece*>(to) = from;
      } else {
        CS_UNROLL
        for (int i = 0; i < 8; ++i)
          if (p * 8 + i < width) to[i] = from.at[i];
      }
    }
  }
};

// The sizes of a call as ints, which take half the registers: no device can hold a head of 2^30
// rows.
struct MmaSizes {
  int batch, heads, kv_heads, tq, tk, dim, value_dim;
  int diagonal;  // without causal: so large that every query attends to every key

  // The number of keys that query i attends to, and the first query that attends to key j.
  CS_HOST_BODY int visible(int i) const {
    const int end = i + diagonal + 1;
    return end > tk ? tk : end < 0 ? 0 : end;
  }
  CS_BODY int first_query(int j) const { return j < diagonal ? 0 : j - diagonal; }
  CS_BODY int group() const { return heads / kv_heads; }
};
inline MmaSizes mma_sizes(const AttentionSizes& n) {
  constexpr std::int64_t kFar = 1 << 30;
  CS_REQUIRE(n.tq < kFar && n.tk < kFar, "attention: ", n.tq, " queries or ", n.tk,
             " keys are too many");
  const auto as_int = [](std::int64_t x) { return static_cast<int>(x); };
  return {as_int(n.batch),
          as_int(n.heads),
          as_int(n.kv_heads),
          as_int(n.tq),
          as_int(n.tk),
          n.dim,
          n.value_dim,
          n.causal ? as_int(std::clamp(n.diagonal, -kFar, kFar - 1)) : as_int(n.tk)};
}

// As AttentionPlace.
struct MmaPlace {
  int batch, head, first;
};
CS_BODY MmaPlace mma_place(int block, int heads, int rows, int tile, bool longest_last) {
  const int tiles = (rows + tile - 1) / tile;
  const int number = block % tiles;
  const int head = block / tiles;
  return {head / heads, head % heads, (longest_last ? tiles - 1 - number : number) * tile};
}

// A row of a tile of queries.
struct MmaQuery {
  int head, i;
};

// The bias added to the scores: [b, h, tq, tk], last stride 1, rows of pairs. Null: none.
template <class T>
struct MmaMask {
  const T* data;
  std::int64_t batch, head, query;  // strides
};

// Arguments common to all kernels here.
template <class T>
struct MmaArgs {
  MmaSizes n;
  HeadRows<const T> q, k, v;
  MmaMask<T> mask;
  float scale;
  bool shown;  // every score passes through show(), which scales it

  // The weight is 2^(score after show() * unit()).
  CS_BODY float unit() const { return shown ? 1.0F : scale * kLog2E; }
  // The factor that show() applies.
  CS_BODY float shown_unit() const { return shown ? scale * kLog2E : 1.0F; }

  // Masks and scales a warp's scores for keys from `first_key` on, and sets those of invisible keys
  // to -inf. query_at(row) is an MmaQuery.
  template <int kM, int kN, class QueryAt>
  CS_BODY void show(Block& block, FragmentC (&scores)[kM][kN], int b, int first_key,
                    QueryAt&& query_at) const {
    const int lane = afresh(block.lane());
    const int first = lane % 4 * 2;  // column
    const float unit = shown_unit();
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int half = 0; half < 2; ++half) {
        const MmaQuery at = query_at(16 * m + 8 * half + lane / 4);
        const int seen = at.i < n.tq ? n.visible(at.i) - first_key - first : 0;
        const T* added = mask.data + b * mask.batch + at.head * mask.head + at.i * mask.query +
                         first_key + first;
        CS_UNROLL
        for (int c = 0; c < 8 * kN; c += 8) {
          std::uint32_t pair = 0;
          if (mask.data != nullptr && c < seen)
            pair = *reinterpret_cast<const std::uint32_t*>(added + c);
          CS_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& score = scores[m][c / 8].at[2 * half + e];
            score = c + e < seen ? score * unit + half_of<T>(pair, e) * kLog2E : -kInfinity;
          }
        }
      }
    }
  }
};

// The mask of a call as an MmaMask. `copy` keeps it alive if it had to be copied: masks that are
// Bool or have another layout.
template <class T>
MmaMask<T> mma_mask(CudaDevice& device, const View& mask, std::shared_ptr<Buffer>& copy);

template <class T, class Args>
void set_mma_args(CudaDevice& device, MmaArgs<T>& to, const AttentionSizes& n, const Args& args,
                  std::shared_ptr<Buffer>& mask) {
  to.n = mma_sizes(n);
  to.q = head_rows<const T>(args.q);
  to.k = head_rows<const T>(args.k);
  to.v = head_rows<const T>(args.v);
  to.mask = mma_mask<T>(device, args.mask, mask);
  to.scale = static_cast<float>(args.scale);
  to.shown = args.mask.data != nullptr || args.scale <= 0;
}

// Calls f(T{}, kDim) for the narrowest of `dims` that heads of `width` fit into.
template <int... dims, class F>
void with_mma_tile(DType dtype, int width, F&& f) {
  const auto with_width = [&](auto tag) {
    bool found = false;
    ((!found && width <= dims ? (found = true, f(tag, std::integral_constant<int, dims>{}))
                              : void()),
     ...);
  };
  dtype == DType::BF16 ? with_width(BFloat16{}) : with_width(Float16{});
}

// bf16 and f16 use tensor cores, f32 and f64 use attention_tile.h.
inline bool attention_by_mma(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16; }
void attention_mma(CudaDevice& device, const AttentionSizes& n, const Attention& args);
void attention_mma(CudaDevice& device, const AttentionSizes& n, const AttentionGrad& args,
                   const float* delta);

}  // namespace coshard::kernels::cuda
