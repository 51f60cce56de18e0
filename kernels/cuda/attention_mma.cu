// Attention forward on tensor cores. The loads of values overlap with the products of queries and
// keys, those of the next keys with the products of weights and values. A few queries (decoding)
// are packed: the heads of a group, which share their keys, become rows of one tile of a single
// warp, and several blocks share the keys (after Dao et al. 2023, Flash-Decoding).
#include <cmath>

#include "kernels/cuda/attention_mma.h"

namespace coshard::kernels::cuda {
namespace {

constexpr int kMmaKeys = 64;  // per tile, if registers and shared memory suffice

template <class T, int kDim, bool packed>
struct AttentionMmaKernel : KernelTraits<packed        ? kWarp
                                         : kDim <= 128 ? 128
                                                       : 256,
                                         true>,
                            MmaArgs<T> {
  static constexpr int kM = packed || kDim > 128 ? 1 : 2;
  static constexpr int kWarps = AttentionMmaKernel::kMaxThreads / kWarp;
  using Tile = MmaTile<T, kDim, kWarps>;
  static constexpr int kQueries = 16 * kM * kWarps;
  static constexpr int kKeys = packed || kDim % 128 == 64 ? kMmaKeys : 32;
  static constexpr std::size_t kShared =
      sizeof(T) * kDim * static_cast<std::size_t>(kQueries + 2 * kKeys);
  static_assert(kShared <= kSharedOfEvery);

  HeadRows<T> out;
  float* lse;
  // packed: the keys are split into `splits` chunks of `chunk`; if there are several, the results
  // go to `parts` [splits, b, h, tq, dv] and `part_lse` [splits, b, h, tq].
  int splits, chunk;
  float* parts;
  float* part_lse;

  struct Running {
    FragmentC out[kM][kDim / 8];
    float high[kM][2];  // of rows g and g + 8, before unit()
    float sum[kM][2];   // of this lane's columns only
  };
  using Scores = FragmentC[kM][kKeys / 8];

  // The work of a block.
  struct Work {
    int batch, kv, head, first, rows;  // rows of the tile, of which the first is `first`
    int begin, end, split;             // keys
  };
  CS_BODY Work work(int block) const {
    const MmaSizes& n = this->n;
    Work w{};
    if constexpr (packed) {
      const int rows = n.group() * n.tq;
      const MmaPlace at = mma_place(block / splits, n.kv_heads, rows, kQueries, false);
      w = {at.batch, at.head, 0, at.first, rows - at.first, 0, n.visible(n.tq - 1), block % splits};
      w.begin = w.split * chunk;
      if (w.end > w.begin + chunk) w.end = w.begin + chunk;
    } else {
      const bool causal = n.diagonal < n.tk;
      const MmaPlace at = mma_place(block, n.heads, n.tq, kQueries, causal);
      w = {at.batch, at.head / n.group(), at.head, at.first, n.tq - at.first, 0, 0, 0};
      w.end = n.visible((w.rows < kQueries ? n.tq : at.first + kQueries) - 1);
    }
    return w;
  }
  CS_BODY MmaQuery query_at(const Work& w, int row) const {
    if constexpr (!packed) return {w.head, w.first + row};
    const MmaSizes& n = this->n;
    const int at = w.first + row;
    return row < w.rows ? MmaQuery{w.kv * n.group() + at / n.tq, at % n.tq} : MmaQuery{0, n.tq};
  }

  CS_BODY void operator()(Block& block) const {
    const MmaSizes& n = this->n;
    const Work w = alike(block, work(static_cast<int>(block.index())));
    T* queries = block.shared<T>();
    T* keys = queries + kQueries * kDim;
    T* values = keys + kKeys * kDim;
    const int row = alike(block, block.warp()) * 16 * kM;
    // Keys visible to some query of the warp, and keys visible to all of them.
    const int last = w.rows < row + 16 * kM ? n.tq : w.first + row + 16 * kM;
    const int some = packed ? w.end : row < w.rows ? n.visible(last - 1) : 0;
    const int all = this->shown ? 0 : n.visible(packed ? 0 : w.first + row);
    copy_queries(block, queries, w);
    if (w.begin < w.end)
      Tile::template copy<kKeys>(block, keys, this->k, w.batch, w.kv, w.begin, n.tk, n.dim);
    block.commit_copies();
    Running running{};
    for (auto& high : running.high) high[0] = high[1] = -kInfinity;
    for (int j = w.begin; j < w.end; j += kKeys) {
      block.template wait_copies<0>();
      block.barrier();  // the keys have arrived; the last values are no longer read
      Tile::template copy<kKeys>(block, values, this->v, w.batch, w.kv, j, n.tk, n.value_dim);
      block.commit_copies();
      Scores scores{};
      if (j < some) Tile::multiply_transposed(block, scores, queries, row, keys);
      block.template wait_copies<0>();
      block.barrier();
      if (j + kKeys < w.end)
        Tile::template copy<kKeys>(block, keys, this->k, w.batch, w.kv, j + kKeys, n.tk, n.dim);
      block.commit_copies();
      if (j >= some) continue;
      if (j + kKeys > all)
        this->show(block, scores, w.batch, j, [&](int r) { return query_at(w, row + r); });
      weigh(block, scores, running);
      Tile::multiply(block, running.out, scores, values);
    }
    block.template wait_copies<0>();
    block.barrier();
    finish(block, running, w, queries, row);
  }

  CS_BODY void copy_queries(Block& block, T* queries, const Work& w) const {
    const HeadRows<const T>& q = this->q;
    const bool whole = q.pieces && this->n.dim % 8 == 0;
    Tile::template copy<kQueries>(block, queries, w.rows, this->n.dim, whole, [&](int row) {
      const MmaQuery at = query_at(w, row);
      return q.at(w.batch, at.head, at.i);
    });
  }

  // Scores become weights, relative to the highest so far: 2^(score * unit - base).
  CS_BODY void weigh(Block& block, Scores& scores, Running& running) const {
    const float unit = this->unit();
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
        const float base = high == -kInfinity ? 0.0F : high * unit;
        const float factor = quick_exp2(running.high[m][half] * unit - base);
        running.high[m][half] = high;
        float sum = running.sum[m][half] * factor;
        CS_UNROLL
        for (int c = 0; c < kKeys / 8; ++c) {
          CS_UNROLL
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[m][c].at[e] = quick_exp2(scores[m][c].at[e] * unit - base);
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

  CS_BODY void finish(Block& block, const Running& running, const Work& w, T* stage,
                      int row) const {
    const MmaSizes& n = this->n;
    const bool whole = out.pieces && n.value_dim % 8 == 0;
    float factor[kM][2];
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int half = 0; half < 2; ++half) {
        float sum = running.sum[m][half];
        sum += block.shuffle_xor(sum, 1);
        sum += block.shuffle_xor(sum, 2);
        const float high = running.high[m][half];
        const bool blind = high == -kInfinity && sum == 0;  // and not NaN
        factor[m][half] = blind ? 0.0F : 1.0F / sum;
        const int r = row + 16 * m + 8 * half + block.lane() / 4;
        const float found = blind ? -kInfinity : high * this->unit() * kLn2 + ::logf(sum);
        if (r < w.rows) tell(block, running.out[m], half, factor[m][half], found, w, r);
      }
    }
    if (packed && splits > 1) return;
    Tile::write(block, running.out, factor, stage, row, w.rows, n.value_dim, whole, [&](int r) {
      const MmaQuery at = query_at(w, r);
      return out.at(w.batch, at.head, at.i);
    });
  }

  // Writes the statistics of row r: its lse and, for a split, also the results.
  CS_BODY void tell(Block& block, const FragmentC (&row)[kDim / 8], int half, float factor,
                    float found, const Work& w, int r) const {
    const MmaSizes& n = this->n;
    const MmaQuery at = query_at(w, r);
    const std::int64_t row_count = std::int64_t{n.batch} * n.heads * n.tq;
    const std::int64_t number = std::int64_t{w.batch * n.heads + at.head} * n.tq + at.i;
    if (!packed || splits == 1) {
      if (block.lane() % 4 == 0) lse[number] = found;
      return;
    }
    const std::int64_t part = w.split * row_count + number;
    if (block.lane() % 4 == 0) part_lse[part] = found;
    float* to = parts + part * n.value_dim;
    CS_UNROLL
    for (int d = 0; d < kDim / 8; ++d) {
      CS_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * d + block.lane() % 4 * 2 + e;
        if (column < n.value_dim) to[column] = row[d].at[2 * half + e] * factor;
      }
    }
  }
};

// Combines the results of the key splits; one warp per query.
template <class T>
struct AttentionCombineKernel : KernelTraits<128, false> {
  AttentionSizes n;
  HeadRows<T> out;
  float* lse;
  const float* parts;
  const float* part_lse;
  int splits;

  CS_BODY void operator()(Block& block) const {
    const std::int64_t row = block.grid_thread() / kWarp;
    const std::int64_t rows = n.batch * n.heads * n.tq;
    if (row >= rows) return;
    float high = -kInfinity;
    bool known = true;  // no NaN (fmaxf ignores NaN)
    for (int s = 0; s < splits; ++s) {
      const float part = part_lse[s * rows + row];
      known = known && part == part;
      high = ::fmaxf(high, part);
    }
    const bool blind = known && high == -kInfinity;
    float sum = 0;
    for (int s = 0; !blind && s < splits; ++s) sum += ::expf(part_lse[s * rows + row] - high);
    if (block.lane() == 0) lse[row] = blind ? high : high + ::logf(sum);
    const std::int64_t head = row / n.tq;
    T* to = out.at(head / n.heads, head % n.heads, row % n.tq);
    for (int d = block.lane(); d < n.value_dim; d += kWarp) {
      float value = 0;
      for (int s = 0; !blind && s < splits; ++s)
        value +=
            ::expf(part_lse[s * rows + row] - high) * parts[(s * rows + row) * n.value_dim + d];
      to[d] = static_cast<T>(blind ? 0.0F : value / sum);
    }
  }
};

// The number of splits of the keys, in whole tiles: enough blocks for a large device, and at least
// four tiles each. It depends on sizes alone, and so do the bits of the result.
std::int64_t splits_of(std::int64_t blocks, std::int64_t tiles) {
  constexpr std::int64_t kBlocks = 512, kMost = 64;
  const std::int64_t wanted = (kBlocks + blocks - 1) / std::max<std::int64_t>(blocks, 1);
  return std::clamp<std::int64_t>(tiles / 4, 1, std::min(wanted, kMost));
}

template <class T, int kDim, bool packed>
AttentionMmaKernel<T, kDim, packed> mma_kernel(CudaDevice& device, const AttentionSizes& n,
                                               const Attention& args,
                                               std::shared_ptr<Buffer>& mask) {
  AttentionMmaKernel<T, kDim, packed> kernel{};
  set_mma_args(device, kernel, n, args, mask);
  kernel.out = head_rows<T>(args.out);
  kernel.lse = as<float>(args.lse);
  kernel.splits = 1;
  kernel.chunk = kernel.n.tk;
  return kernel;
}

template <class T, int kDim>
void launch_packed(CudaDevice& device, const AttentionSizes& n, const Attention& args) {
  std::shared_ptr<Buffer> mask, parts;
  auto kernel = mma_kernel<T, kDim, true>(device, n, args, mask);
  const std::int64_t blocks =
      attention_blocks(n.batch, n.kv_heads, n.heads / n.kv_heads * n.tq, kernel.kQueries);
  const int keys = n.tq > 0 ? kernel.n.visible(kernel.n.tq - 1) : 0;
  const std::int64_t tiles = (keys + kMmaKeys - 1) / kMmaKeys;
  const std::int64_t wanted = splits_of(blocks, tiles);
  const std::int64_t each = (tiles + wanted - 1) / wanted;
  const std::int64_t rows = n.batch * n.heads * n.tq;
  if (each < tiles) {
    kernel.chunk = static_cast<int>(each) * kMmaKeys;
    kernel.splits = static_cast<int>((tiles + each - 1) / each);
    const std::int64_t floats = kernel.splits * rows * (n.value_dim + 1);
    parts = device.make_buffer(static_cast<std::size_t>(floats) * sizeof(float));
    kernel.part_lse = as<float>(parts->data());
    kernel.parts = kernel.part_lse + kernel.splits * rows;
  }
  launch(device, "attention mma few", kernel, blocks * kernel.splits, kernel.kMaxThreads,
         kernel.kShared);
  if (kernel.splits == 1) return;
  AttentionCombineKernel<T> combine{
      {}, n, kernel.out, kernel.lse, kernel.parts, kernel.part_lse, kernel.splits};
  launch(device, "attention combine", combine, (rows + 3) / 4, 128);
}

}  // namespace

void attention_mma(CudaDevice& device, const AttentionSizes& n, const Attention& args) {
  const int width = std::max(n.dim, n.value_dim);
  if (n.tq <= 32)
    return with_mma_tile<64, 128, 256>(args.q.dtype, width, [&](auto tag, auto dim) {
      launch_packed<decltype(tag), dim()>(device, n, args);
    });
  with_mma_tile<64, 96, 128, 192, 256>(args.q.dtype, width, [&](auto tag, auto dim) {
    std::shared_ptr<Buffer> mask;
    const auto kernel = mma_kernel<decltype(tag), dim(), false>(device, n, args, mask);
    launch(device, "attention mma", kernel,
           attention_blocks(n.batch, n.heads, n.tq, kernel.kQueries), kernel.kMaxThreads,
           kernel.kShared);
  });
}

}  // namespace coshard::kernels::cuda
