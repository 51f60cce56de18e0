// Attention forward: a tile of queries iterates over the keys with a running maximum and sum
// (online softmax: Milakov and Gimelshein 2018; Dao et al. 2022), so that no tq x tk matrix is
// stored. For f32 and f64, and where keys are hidden; other calls of bf16 and f16 are in attention_mma.cu.
#include <cmath>

#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/attention_tile.h"

namespace coshard::kernels::cuda {
namespace {

template <class T, class Tile, class Keys>
struct AttentionKernel : KernelTraits<kAttentionThreads, true> {
  using W = Wide<T>;
  Keys n;
  HeadRows<const T> q, k, v;
  HeadRows<T> out;
  W* lse;
  W scale;
  AttentionMask<T> mask;

  static constexpr std::size_t kShared =
      sizeof(W) * (Tile::kRowTile + Tile::kColumnTile + Tile::kProductTile);

  // A thread's state for its rows.
  struct Running {
    W high[Tile::kTall];
    W sum[Tile::kTall];  // of this thread's columns only
    typename Tile::Results out;
  };

  CS_BODY void operator()(Block& block) const {
    const AttentionPlace at = attention_place(block.index(), n.heads, n.tq, Tile::kRows, n.causal);
    const std::int64_t kv = n.kv_head(at.head);
    const std::int64_t rows = n.tq - at.first;
    W* queries = block.shared<W>();
    W* columns = queries + Tile::kRowTile;  // keys, then values
    W* products = columns + Tile::kColumnTile;
    Tile::load(block, queries, Tile::kRows, q, at.batch, at.head, at.first, n.tq, n.dim);
    Running running{};
    for (W& high : running.high) high = -static_cast<W>(HUGE_VALF);
    const std::int64_t last = rows < Tile::kRows ? n.tq : at.first + Tile::kRows;
    const std::int64_t keys = tile_key_end(n, at.batch, at.first, last);
    std::int64_t j = tile_key_begin(n, at.batch, at.first, last) / Tile::kColumns * Tile::kColumns;
    for (; j < keys; j += Tile::kColumns) {
      block.barrier();
      Tile::load(block, columns, Tile::kColumns, k, at.batch, kv, j, n.tk, n.dim);
      block.barrier();
      typename Tile::Products scores;
      Tile::multiply(block, scores, queries, columns, n.dim);
      mask_scores(block, scores, at, j);
      weigh(block, scores, running);
      Tile::store(block, products, scores);
      block.barrier();
      Tile::load(block, columns, Tile::kColumns, v, at.batch, kv, j, n.tk, n.value_dim);
      block.barrier();
      Tile::accumulate(block, running.out, products, columns);
    }
    finish(block, running, at, rows);
  }

  CS_BODY void mask_scores(Block& block, typename Tile::Products& scores, const AttentionPlace& at,
                           std::int64_t first_key) const {
    for (int r = 0; r < Tile::kTall; ++r) {
      const std::int64_t i = at.first + block.thread() / 16 + 8 * r;
      const std::int64_t begin = i < n.tq ? key_begin(n, at.batch, i) : 0;
      const std::int64_t keys = i < n.tq ? key_end(n, at.batch, i) : 0;
      for (int c = 0; c < Tile::kBroad; ++c) {
        const std::int64_t j = first_key + block.thread() % 16 + 16 * c;
        W score = -static_cast<W>(HUGE_VALF);
        const bool seen = j < keys && j >= begin;
        if (seen) score = scale * scores[r][c];
        if (seen && mask.data != nullptr) score += mask.added(at.batch, at.head, i, j);
        scores[r][c] = score;
      }
    }
  }

  // Scores become weights, relative to the highest score so far.
  CS_BODY void weigh(Block& block, typename Tile::Products& scores, Running& running) const {
    const W lowest = -static_cast<W>(HUGE_VALF);
    for (int r = 0; r < Tile::kTall; ++r) {
      W high = running.high[r];
      for (int c = 0; c < Tile::kBroad; ++c) high = scores[r][c] > high ? scores[r][c] : high;
      for (int step = 8; step > 0; step /= 2) {
        const W other = block.shuffle_xor(high, step);
        high = other > high ? other : high;
      }
      const bool blind = high == lowest;
      const W factor = blind ? W(1) : attention_exp(running.high[r] - high);
      running.high[r] = high;
      running.sum[r] *= factor;
      for (int c = 0; c < Tile::kBroad; ++c) {
        const bool hidden = blind && scores[r][c] == scores[r][c];  // and not NaN
        scores[r][c] = hidden ? W(0) : attention_exp(scores[r][c] - high);
        running.sum[r] += scores[r][c];
      }
      for (auto& part : running.out.at[r])
        for (W& value : part.at) value *= factor;
    }
  }

  CS_BODY void finish(Block& block, Running& running, const AttentionPlace& at,
                      std::int64_t rows) const {
    W factor[Tile::kTall];
    for (int r = 0; r < Tile::kTall; ++r) {
      W sum = running.sum[r];
      for (int step = 8; step > 0; step /= 2) sum += block.shuffle_xor(sum, step);
      const bool blind = running.high[r] == -static_cast<W>(HUGE_VALF) && sum == 0;
      factor[r] = blind ? W(0) : W(1) / sum;
      const int row = block.thread() / 16 + 8 * r;
      if (block.thread() % 16 == 0 && row < rows)
        lse[(at.batch * n.heads + at.head) * n.tq + at.first + row] =
            blind ? running.high[r] : running.high[r] + attention_log(sum);
    }
    Tile::write(block, running.out, factor, out.at(at.batch, at.head, at.first), out.row, rows,
                n.value_dim);
  }
};

}  // namespace

void run(CudaDevice& device, const Attention& args) {
  const AttentionSizes n = attention_sizes(args);
  if (attention_by_mma(args.q.dtype) && !hides_keys(n, args)) return attention_mma(device, n, args);
  with_attention_tile(args, n, [&](auto tag, auto tile, auto keys) {
    using T = decltype(tag);
    using Kernel = AttentionKernel<T, decltype(tile), decltype(keys)>;
    Kernel kernel{};
    kernel.n = keys;
    kernel.q = head_rows<const T>(args.q);
    kernel.k = head_rows<const T>(args.k);
    kernel.v = head_rows<const T>(args.v);
    kernel.out = head_rows<T>(args.out);
    kernel.lse = as<Wide<T>>(args.lse);
    kernel.scale = static_cast<Wide<T>>(args.scale);
    kernel.mask = attention_mask<T>(args.mask);
    launch(device, "attention", kernel,
           attention_blocks(n.batch, n.heads, n.tq, decltype(tile)::kRows), kAttentionThreads,
           Kernel::kShared);
  });
}

}  // namespace coshard::kernels::cuda
