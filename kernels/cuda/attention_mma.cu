// Attention forward on tensor cores. While the products of queries and keys are computed the values
// are on their way, and while weights meet values, the next keys.
#include <cmath>

#include "kernels/cuda/attention_mma.h"

namespace coshard::kernels::cuda {
namespace {

// kM x 16 queries to each warp.
template <int kDim, int kM>
struct AttentionMmaKernel : KernelTraits<kMmaThreads, true> {
  using Tile = MmaTile<kDim>;
  static constexpr int kQueries = 16 * kM * kMmaWarps;
  static constexpr int kKeys = 64;
  static constexpr std::size_t kShared =
      sizeof(BFloat16) * kDim * static_cast<std::size_t>(kQueries + 2 * kKeys);

  AttentionSizes n;
  HeadRows<const BFloat16> q, k, v;
  HeadRows<BFloat16> out;
  float* lse;
  float scale;

  struct Running {
    FragmentC out[kM][kDim / 8];
    float high[kM][2];  // of rows g and g + 8, unscaled
    float sum[kM][2];   // of this lane's columns only
  };
  using Scores = FragmentC[kM][kKeys / 8];

  CS_BODY void operator()(Block& block) const {
    const AttentionPlace at = attention_place(block.index(), n.heads, n.tq, kQueries, n.causal);
    const std::int64_t kv = n.kv_head(at.head);
    const std::int64_t rows = n.tq - at.first;
    BFloat16* queries = block.shared<BFloat16>();
    BFloat16* keys = queries + kQueries * kDim;
    BFloat16* values = keys + kKeys * kDim;
    const int row = block.warp() * 16 * kM;
    const std::int64_t end = n.visible((rows < kQueries ? n.tq : at.first + kQueries) - 1);
    Tile::copy(block, queries, kQueries, q.at(at.batch, at.head, at.first), q.row, rows);
    if (end > 0) Tile::copy(block, keys, kKeys, k.at(at.batch, kv, 0), k.row, n.tk);
    block.commit_copies();
    Running running{};
    for (auto& high : running.high) high[0] = high[1] = -kInfinity;
    for (std::int64_t j = 0; j < end; j += kKeys) {
      block.wait_copies<0>();
      block.barrier();  // the keys are there; the values before are no longer read
      Tile::copy(block, values, kKeys, v.at(at.batch, kv, j), v.row, n.tk - j);
      block.commit_copies();
      Scores scores{};
      Tile::multiply_transposed(block, scores, queries, row, keys);
      block.wait_copies<0>();
      block.barrier();
      if (j + kKeys < end)
        Tile::copy(block, keys, kKeys, k.at(at.batch, kv, j + kKeys), k.row, n.tk - j - kKeys);
      block.commit_copies();
      if (j + kKeys > n.visible(at.first + row)) hide(block, scores, at.first + row, j);
      weigh(block, scores, running);
      Tile::multiply(block, running.out, scores, values);
    }
    block.wait_copies<0>();
    block.barrier();
    finish(block, running, at, queries, row);
  }

  // Scores of keys that a query does not see become -inf.
  CS_BODY void hide(Block& block, Scores& scores, std::int64_t first_query,
                    std::int64_t first_key) const {
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int half = 0; half < 2; ++half) {
        const std::int64_t i = first_query + 16 * m + 8 * half + block.lane() / 4;
        const std::int64_t seen = n.visible(i) - first_key - block.lane() % 4 * 2;
        CS_UNROLL
        for (int c = 0; c < kKeys / 8; ++c) {
          if (8 * c >= seen) scores[m][c].at[2 * half] = -kInfinity;
          if (8 * c + 1 >= seen) scores[m][c].at[2 * half + 1] = -kInfinity;
        }
      }
    }
  }

  // Scores become weights, relative to the highest so far: 2^(score * scale * log2 e - base).
  CS_BODY void weigh(Block& block, Scores& scores, Running& running) const {
    const float exponent = scale * kLog2E;
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int half = 0; half < 2; ++half) {
        float high = running.high[m][half];
        CS_UNROLL
        for (int c = 0; c < kKeys / 8; ++c)
          high = ::fmaxf(high, ::fmaxf(scores[m][c].at[2 * half], scores[m][c].at[2 * half + 1]));
        high = ::fmaxf(high, block.shuffle_xor(high, 1));
        high = ::fmaxf(high, block.shuffle_xor(high, 2));
        const float base = high == -kInfinity ? 0.0F : high * exponent;
        const float factor = quick_exp2(running.high[m][half] * exponent - base);
        running.high[m][half] = high;
        float sum = running.sum[m][half] * factor;
        CS_UNROLL
        for (int c = 0; c < kKeys / 8; ++c) {
          CS_UNROLL
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[m][c].at[e] = quick_exp2(scores[m][c].at[e] * exponent - base);
            sum += scores[m][c].at[e];
          }
        }
        running.sum[m][half] = sum;
        CS_UNROLL
        for (int d = 0; d < kDim / 8; ++d) {
          running.out[m][d].at[2 * half] *= factor;
          running.out[m][d].at[2 * half + 1] *= factor;
        }
      }
    }
  }

  CS_BODY void finish(Block& block, const Running& running, const AttentionPlace& at,
                      BFloat16* stage, int row) const {
    const std::int64_t rows = n.tq - at.first;
    float factor[kM][2];
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int half = 0; half < 2; ++half) {
        float sum = running.sum[m][half];
        sum += block.shuffle_xor(sum, 1);
        sum += block.shuffle_xor(sum, 2);
        const float high = running.high[m][half];
        const bool blind = high == -kInfinity;
        factor[m][half] = blind ? 0.0F : 1.0F / sum;
        const int i = row + 16 * m + 8 * half + block.lane() / 4;
        if (block.lane() % 4 == 0 && i < rows)
          lse[(at.batch * n.heads + at.head) * n.tq + at.first + i] =
              blind ? -kInfinity : high * scale + ::logf(sum);
      }
    }
    Tile::write(block, running.out, factor, stage, row, out.at(at.batch, at.head, at.first),
                out.row, rows);
  }
};

template <int kDim, int kM>
void launch_attention_mma(CudaDevice& device, const AttentionSizes& n, const Attention& args) {
  using Kernel = AttentionMmaKernel<kDim, kM>;
  Kernel kernel{};
  kernel.n = n;
  kernel.q = head_rows<const BFloat16>(args.q);
  kernel.k = head_rows<const BFloat16>(args.k);
  kernel.v = head_rows<const BFloat16>(args.v);
  kernel.out = head_rows<BFloat16>(args.out);
  kernel.lse = as<float>(args.lse);
  kernel.scale = static_cast<float>(args.scale);
  launch(device, "attention mma", kernel,
         attention_blocks(n.batch, n.heads, n.tq, Kernel::kQueries), kMmaThreads, Kernel::kShared);
}

}  // namespace

bool attention_by_mma(CudaDevice& device, const AttentionSizes& n, const Attention& args) {
  if (!fits_mma(device, n, args.mask, args.scale)) return false;
  for (const View* view : {&args.q, &args.k, &args.v, &args.out})
    if (!fits_mma(*view)) return false;
  // Short queries leave no half-empty tiles and more blocks with 64 to a tile.
  const bool shorter = n.tq <= 64;
  if (n.dim == 64) {
    shorter ? launch_attention_mma<64, 1>(device, n, args)
            : launch_attention_mma<64, 2>(device, n, args);
  } else {
    shorter ? launch_attention_mma<128, 1>(device, n, args)
            : launch_attention_mma<128, 2>(device, n, args);
  }
  return true;
}

}  // namespace coshard::kernels::cuda
