#pragma once
// Tiles of attention for the tensor cores: bf16 [rows, kDim] in shared memory, whose 16-byte pieces
// are swizzled (piece p of row r lies at p ^ (r % 8)), so that the eight rows of a matrix that
// ldmatrix reads, and those that fragments are stored to, fall into different banks. Blocks have
// four warps; each owns 16 or 32 rows of a tile and keeps their products in fragments (after Dao
// 2023, FlashAttention-2). Used by attention_mma.cu and attention_mma_grad.cu.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/pieces.h"
#include "runtime/device/cuda/fragment.h"

namespace coshard::kernels::cuda {

constexpr int kMmaThreads = 128;
constexpr int kMmaWarps = kMmaThreads / kWarp;
constexpr float kLog2E = 1.4426950408889634F;
constexpr float kInfinity = HUGE_VALF;

template <int kDim>
struct MmaTile {
  static constexpr int kPieces = kDim / 8;  // of a row
  using Rows = HeadRows<BFloat16>;

  CS_BODY static BFloat16* piece(BFloat16* tile, int row, int piece) {
    return tile + row * kDim + (piece ^ (row % 8)) * 8;
  }

  // Starts to copy rows [0, rows) of which `count` exist; the others become 0.
  CS_BODY static void copy(Block& block, BFloat16* to, int rows, const BFloat16* from,
                           std::int64_t stride, std::int64_t count) {
    constexpr int kStep = kMmaThreads / kPieces;  // rows; a multiple of 8, so pieces stay in place
    const int exist = count < rows ? static_cast<int>(count) : rows;
    const int first = block.thread() / kPieces;
    const int p = block.thread() % kPieces;
    to = piece(to, first, p);
    from += first * stride + p * 8;
    CS_UNROLL
    for (int row = 0; row < rows; row += kStep) {
      block.copy16(to + row * kDim, from, first + row < exist);
      from += kStep * stride;
    }
  }

  // Where a lane reads, in elements from a tile's first: row lane % 16 of two pieces side by side,
  // or (across) row lane % 8 of two pieces side by side and then of the eight rows below. Other
  // pieces 2 k on lie at `^ 16 k`, rows further down at `+ row * kDim`, for row a multiple of 8.
  CS_BODY static int lane_offset(int lane) {
    return lane % 16 * kDim + ((lane / 16) ^ (lane % 8)) * 8;
  }
  CS_BODY static int across_offset(int lane) {
    return (lane % 8 + lane / 16 * 8) * kDim + ((lane / 8 % 2) ^ (lane % 8)) * 8;
  }

  // c[m][n] += a[row + 16 m ...] . b[8 n ...]^T, over kDim. b: 8 kN rows.
  template <int kM, int kN>
  CS_BODY static void multiply_transposed(Block& block, FragmentC (&c)[kM][kN], const BFloat16* a,
                                          int row, const BFloat16* b) {
    const int from_a = row * kDim + lane_offset(block.lane());
    const int from_b = across_offset(block.lane());
    CS_UNROLL
    for (int k = 0; k < kDim / 16; ++k) {
      FragmentA fa[kM];
      CS_UNROLL
      for (int m = 0; m < kM; ++m) {
        const FourMatrices four = load_matrices(block, a + (from_a ^ 16 * k) + 16 * m * kDim);
        fa[m] = {{four.at[0], four.at[1], four.at[2], four.at[3]}};
      }
      CS_UNROLL
      for (int n = 0; n < kN; n += 2) {
        const FourMatrices four = load_matrices(block, b + (from_b ^ 16 * k) + 8 * n * kDim);
        CS_UNROLL
        for (int m = 0; m < kM; ++m) {
          multiply_add(block, c[m][n], fa[m], {{four.at[0], four.at[1]}});
          multiply_add(block, c[m][n + 1], fa[m], {{four.at[2], four.at[3]}});
        }
      }
    }
  }

  // c[m][n] += a[m] . b, where a is products rounded to bf16 [16, 8 kN] and b has 8 kN rows.
  template <int kM, int kN>
  CS_BODY static void multiply(Block& block, FragmentC (&c)[kM][kDim / 8],
                               const FragmentC (&a)[kM][kN], const BFloat16* b) {
    const int from_b = lane_offset(block.lane());
    CS_UNROLL
    for (int k = 0; k < kN / 2; ++k) {
      FragmentA fa[kM];
      CS_UNROLL
      for (int m = 0; m < kM; ++m) fa[m] = rounded(a[m][2 * k], a[m][2 * k + 1]);
      CS_UNROLL
      for (int n = 0; n < kPieces; n += 2) {
        const FourMatrices four =
            load_matrices_transposed(block, b + (from_b ^ 8 * n) + 16 * k * kDim);
        CS_UNROLL
        for (int m = 0; m < kM; ++m) {
          multiply_add(block, c[m][n], fa[m], {{four.at[0], four.at[1]}});
          multiply_add(block, c[m][n + 1], fa[m], {{four.at[2], four.at[3]}});
        }
      }
    }
  }

  // Two neighbouring results as one operand: their layouts agree.
  CS_BODY static FragmentA rounded(const FragmentC& left, const FragmentC& right) {
    return {{pack_bf16(left.at[0], left.at[1]), pack_bf16(left.at[2], left.at[3]),
             pack_bf16(right.at[0], right.at[1]), pack_bf16(right.at[2], right.at[3])}};
  }

  // Writes the warp's rows [row, row + 16 kM) of a tile, times factor[m][row half], by way of the
  // same rows of `stage`, which nothing else uses any more. `to`: row 0 of the tile; `count` rows
  // exist.
  template <int kM>
  CS_BODY static void write(Block& block, const FragmentC (&c)[kM][kDim / 8],
                            const float (&factor)[kM][2], BFloat16* stage, int row, BFloat16* to,
                            std::int64_t stride, std::int64_t count) {
    const int g = block.lane() / 4;
    const int t = block.lane() % 4;
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int n = 0; n < kPieces; ++n) {
        CS_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float f = factor[m][half];
          BFloat16* at = piece(stage, row + 16 * m + 8 * half + g, n) + 2 * t;
          *reinterpret_cast<std::uint32_t*>(at) =
              pack_bf16(c[m][n].at[2 * half] * f, c[m][n].at[2 * half + 1] * f);
        }
      }
    }
    block.warp_barrier();
    CS_UNROLL
    for (int e = block.lane(); e < 16 * kM * kPieces; e += kWarp) {
      const int r = row + e / kPieces;
      const int p = e % kPieces;
      if (r < count)
        *reinterpret_cast<MmaPiece*>(to + r * stride + p * 8) =
            *reinterpret_cast<const MmaPiece*>(piece(stage, r, p));
    }
  }

  struct alignas(16) MmaPiece {
    std::uint32_t at[4];
  };
};

// They take the call if it is one for them: bf16 on sm_80 or later, head dimensions both 64 or
// both 128, no mask, rows aligned to 16 bytes.
bool attention_by_mma(CudaDevice& device, const AttentionSizes& n, const Attention& args);
bool attention_by_mma(CudaDevice& device, const AttentionSizes& n, const AttentionGrad& args,
                      const float* delta);

inline bool fits_mma(const View& v) { return v.dtype == DType::BF16 && rows_in_pieces(v, 8); }
inline bool fits_mma(const CudaDevice& device, const AttentionSizes& n, const View& mask,
                     double scale) {
  return device.capability() >= 80 && n.dim == n.value_dim && (n.dim == 64 || n.dim == 128) &&
         mask.data == nullptr && scale > 0;
}

}  // namespace coshard::kernels::cuda
