// Attention backward, from q, k, v and the log-sum-exp of the forward: first delta = sum(dout *
// out) of each query, then dq by blocks over queries, then dk and dv by blocks over keys that
// iterate over the queries of all heads of their group. Every sum has a fixed order: results are
// deterministic.
#include <cmath>

#include <coshard/runtime/device/buffer.h>
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/pieces.h"

namespace coshard::kernels::cuda {
namespace {

// One warp per query; lanes read kPiece elements at once.
template <class T, int kPiece>
struct AttentionDeltaKernel : KernelTraits<kAttentionThreads, true> {
  using W = Wide<T>;
  AttentionSizes n;
  HeadRows<const T> dout, out;
  W* delta;
  struct alignas(kPiece * sizeof(T)) Piece {
    T at[kPiece];
  };
  CS_BODY void operator()(Block& block) const {
    const std::int64_t row = block.grid_thread() / kWarp;
    const bool there = row < n.batch * n.heads * n.tq;
    W sum(0);
    if (there) {
      const std::int64_t head = row / n.tq;
      const T* a = dout.at(head / n.heads, head % n.heads, row % n.tq);
      const T* b = out.at(head / n.heads, head % n.heads, row % n.tq);
      for (int d = block.lane() * kPiece; d < n.value_dim; d += kWarp * kPiece) {
        const Piece left = *reinterpret_cast<const Piece*>(a + d);
        const Piece right = *reinterpret_cast<const Piece*>(b + d);
        CS_UNROLL
        for (int e = 0; e < kPiece; ++e) sum += widen(left.at[e]) * widen(right.at[e]);
      }
    }
    for (int step = kWarp / 2; step > 0; step /= 2) sum += block.shuffle_xor(sum, step);
    if (there && block.lane() == 0) delta[row] = sum;
  }
};

// Shared by both gradient kernels: the weight p of a (query, key) pair, and the gradient of its
// score.
template <class T, class Keys>
struct AttentionGradArgs {
  using W = Wide<T>;
  Keys n;
  HeadRows<const T> q, k, v, dout;
  const W* lse;
  const W* delta;
  W scale;
  AttentionMask<T> mask;

  struct Query {
    W lse, delta;
  };
  CS_BODY Query query(std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (i >= n.tq) return {-static_cast<W>(HUGE_VALF), W(0)};
    const std::int64_t at = (b * n.heads + h) * n.tq + i;
    return {lse[at], delta[at]};
  }
  // score: q . k, becomes p; slope: dout . v, becomes p * (slope - delta).
  CS_BODY void weigh(const Query& query, std::int64_t b, std::int64_t h, std::int64_t i,
                     std::int64_t j, W& score, W& slope) const {
    const bool seen = query.lse != -static_cast<W>(HUGE_VALF) && i < n.tq && attends_to(n, b, i, j);
    W p(0);
    if (seen) {
      W exponent = scale * score;
      if (mask.data != nullptr) exponent += mask.added(b, h, i, j);
      p = attention_exp(exponent - query.lse);
    }
    score = p;
    slope = seen ? p * (slope - query.delta) : W(0);
  }
};

template <class T, class Tile, class Keys>
struct AttentionDqKernel : KernelTraits<kAttentionThreads, true>, AttentionGradArgs<T, Keys> {
  using W = Wide<T>;
  HeadRows<T> dq;
  HeadRows<T> dmask;  // data null: not requested
  static constexpr std::size_t kShared =
      sizeof(W) * (2 * Tile::kRowTile + 2 * Tile::kColumnTile + Tile::kProductTile);

  CS_BODY void operator()(Block& block) const {
    const Keys& n = this->n;
    const AttentionPlace at = attention_place(block.index(), n.heads, n.tq, Tile::kRows, n.causal);
    const std::int64_t kv = n.kv_head(at.head);
    const std::int64_t rows = n.tq - at.first;
    W* queries = block.shared<W>();
    W* douts = queries + Tile::kRowTile;
    W* keys = douts + Tile::kRowTile;
    W* values = keys + Tile::kColumnTile;
    W* products = values + Tile::kColumnTile;
    Tile::load(block, queries, Tile::kRows, this->q, at.batch, at.head, at.first, n.tq, n.dim);
    Tile::load(block, douts, Tile::kRows, this->dout, at.batch, at.head, at.first, n.tq,
               n.value_dim);
    typename Tile::Results results{};
    const std::int64_t last = rows < Tile::kRows ? n.tq : at.first + Tile::kRows;
    const bool all = dmask.data != nullptr;
    const std::int64_t first = all ? 0 : tile_key_begin(n, at.batch, at.first, last);
    const std::int64_t end = all ? n.tk : tile_key_end(n, at.batch, at.first, last);
    for (std::int64_t j = first / Tile::kColumns * Tile::kColumns; j < end; j += Tile::kColumns) {
      block.barrier();
      Tile::load(block, keys, Tile::kColumns, this->k, at.batch, kv, j, n.tk, n.dim);
      Tile::load(block, values, Tile::kColumns, this->v, at.batch, kv, j, n.tk, n.value_dim);
      block.barrier();
      typename Tile::Products scores, slopes;
      Tile::multiply(block, scores, queries, keys, n.dim);
      Tile::multiply(block, slopes, douts, values, n.value_dim);
      weigh_tile(block, scores, slopes, at, j);
      Tile::store(block, products, slopes);
      block.barrier();
      Tile::accumulate(block, results, products, keys);
    }
    W factor[Tile::kTall];
    for (W& f : factor) f = this->scale;
    Tile::write(block, results, factor, dq.at(at.batch, at.head, at.first), dq.row, rows, n.dim);
  }

  CS_BODY void weigh_tile(Block& block, typename Tile::Products& scores,
                          typename Tile::Products& slopes, const AttentionPlace& at,
                          std::int64_t first_key) const {
    for (int r = 0; r < Tile::kTall; ++r) {
      const std::int64_t i = at.first + block.thread() / 16 + 8 * r;
      const auto query = this->query(at.batch, at.head, i);
      for (int c = 0; c < Tile::kBroad; ++c) {
        const std::int64_t j = first_key + block.thread() % 16 + 16 * c;
        this->weigh(query, at.batch, at.head, i, j, scores[r][c], slopes[r][c]);
        if (dmask.data != nullptr && i < this->n.tq && j < this->n.tk)
          dmask.at(at.batch, at.head, i)[j] = static_cast<T>(slopes[r][c]);
      }
    }
  }
};

template <class T, class Tile, class Keys>
struct AttentionDkvKernel : KernelTraits<kAttentionThreads, true>, AttentionGradArgs<T, Keys> {
  using W = Wide<T>;
  HeadRows<T> dk, dv;
  static constexpr std::size_t kShared =
      sizeof(W) * (2 * Tile::kRowTile + 2 * Tile::kColumnTile + 2 * Tile::kProductTile);

  struct Shared {
    W *keys, *values, *queries, *douts, *weights, *slopes;
  };
  struct Sums {
    typename Tile::Results dk, dv;
  };

  CS_BODY void operator()(Block& block) const {
    const Keys& n = this->n;
    const AttentionPlace at = attention_place(block.index(), n.kv_heads, n.tk, Tile::kRows, false);
    const std::int64_t rows = n.tk - at.first;
    Shared s;
    s.keys = block.shared<W>();
    s.values = s.keys + Tile::kRowTile;
    s.queries = s.values + Tile::kRowTile;
    s.douts = s.queries + Tile::kColumnTile;
    s.weights = s.douts + Tile::kColumnTile;
    s.slopes = s.weights + Tile::kProductTile;
    Tile::load(block, s.keys, Tile::kRows, this->k, at.batch, at.head, at.first, n.tk, n.dim);
    Tile::load(block, s.values, Tile::kRows, this->v, at.batch, at.head, at.first, n.tk,
               n.value_dim);
    Sums sums{};
    const std::int64_t group = n.heads / n.kv_heads;
    const std::int64_t begin = n.first_query(at.first) / Tile::kColumns * Tile::kColumns;
    std::int64_t end = n.tq;
    if constexpr (kHasRanges<Keys>)
      end = n.query_end((rows < Tile::kRows ? n.tk : at.first + Tile::kRows) - 1);
    for (std::int64_t h = at.head * group; h < (at.head + 1) * group; ++h)
      for (std::int64_t i = begin; i < end; i += Tile::kColumns) turn(block, s, sums, at, h, i);
    W one[Tile::kTall], factor[Tile::kTall];
    for (W& f : one) f = W(1);
    for (W& f : factor) f = this->scale;
    Tile::write(block, sums.dk, factor, dk.at(at.batch, at.head, at.first), dk.row, rows, n.dim);
    Tile::write(block, sums.dv, one, dv.at(at.batch, at.head, at.first), dv.row, rows, n.value_dim);
  }

  // Adds the contributions of the queries of head h from `first` on.
  CS_BODY void turn(Block& block, const Shared& s, Sums& sums, const AttentionPlace& at,
                    std::int64_t h, std::int64_t first) const {
    const Keys& n = this->n;
    block.barrier();
    Tile::load(block, s.queries, Tile::kColumns, this->q, at.batch, h, first, n.tq, n.dim);
    Tile::load(block, s.douts, Tile::kColumns, this->dout, at.batch, h, first, n.tq, n.value_dim);
    block.barrier();
    typename Tile::Products scores, slopes;
    Tile::multiply(block, scores, s.keys, s.queries, n.dim);
    Tile::multiply(block, slopes, s.values, s.douts, n.value_dim);
    for (int c = 0; c < Tile::kBroad; ++c) {
      const std::int64_t i = first + block.thread() % 16 + 16 * c;
      const auto query = this->query(at.batch, h, i);
      for (int r = 0; r < Tile::kTall; ++r) {
        const std::int64_t j = at.first + block.thread() / 16 + 8 * r;
        this->weigh(query, at.batch, h, i, j, scores[r][c], slopes[r][c]);
      }
    }
    Tile::store(block, s.weights, scores);
    Tile::store(block, s.slopes, slopes);
    block.barrier();
    Tile::accumulate(block, sums.dv, s.weights, s.douts);
    Tile::accumulate(block, sums.dk, s.slopes, s.queries);
  }
};

template <class T, class Keys>
AttentionGradArgs<T, Keys> grad_args(const AttentionGrad& args, const Keys& n, void* delta) {
  AttentionGradArgs<T, Keys> common{};
  common.n = n;
  common.q = head_rows<const T>(args.q);
  common.k = head_rows<const T>(args.k);
  common.v = head_rows<const T>(args.v);
  common.dout = head_rows<const T>(args.dout);
  common.lse = as<Wide<T>>(args.lse);
  common.delta = as<Wide<T>>(delta);
  common.scale = static_cast<Wide<T>>(args.scale);
  common.mask = attention_mask<T>(args.mask);
  return common;
}

template <class T, int kPiece>
void launch_delta(CudaDevice& device, const AttentionSizes& n, const AttentionGrad& args,
                  void* delta) {
  AttentionDeltaKernel<T, kPiece> kernel{};
  kernel.n = n;
  kernel.dout = head_rows<const T>(args.dout);
  kernel.out = head_rows<const T>(args.out);
  kernel.delta = as<Wide<T>>(delta);
  const std::int64_t rows = n.batch * n.heads * n.tq;
  const int each = kAttentionThreads / kWarp;
  launch(device, "attention delta", kernel, (rows + each - 1) / each, kAttentionThreads);
}

// delta[b,h,i] = sum_d dout * out, in the statistics' dtype.
void attention_delta(CudaDevice& device, const AttentionGrad& args, void* delta) {
  const AttentionSizes n = attention_sizes(args);
  with_floating(args.q.dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr int kPiece = sizeof(T) == 8 ? 2 : 4;
    if (n.value_dim % kPiece == 0 && rows_in_pieces(args.dout, kPiece) &&
        rows_in_pieces(args.out, kPiece))
      return launch_delta<T, kPiece>(device, n, args, delta);
    return launch_delta<T, 1>(device, n, args, delta);
  });
}

}  // namespace

void run(CudaDevice& device, const AttentionGrad& args) {
  const AttentionSizes n = attention_sizes(args);
  const auto queries = static_cast<std::size_t>(n.batch * n.heads * n.tq);
  const auto delta =
      device.make_buffer(queries * (args.q.dtype == DType::F64 ? sizeof(double) : sizeof(float)));
  attention_delta(device, args, delta->data());
  if (attention_by_mma(args.q.dtype) && !hides_keys(n, args))
    return attention_mma(device, n, args, as<float>(delta->data()));
  with_attention_tile(args, n, [&](auto tag, auto tile, auto keys) {
    using T = decltype(tag);
    using Tile = decltype(tile);
    using Keys = decltype(keys);
    const AttentionGradArgs<T, Keys> common = grad_args<T>(args, keys, delta->data());
    AttentionDqKernel<T, Tile, Keys> by_query{};
    static_cast<AttentionGradArgs<T, Keys>&>(by_query) = common;
    by_query.dq = head_rows<T>(args.dq);
    by_query.dmask = head_rows<T>(args.dmask);
    launch(device, "attention dq", by_query, attention_blocks(n.batch, n.heads, n.tq, Tile::kRows),
           kAttentionThreads, by_query.kShared);
    AttentionDkvKernel<T, Tile, Keys> by_key{};
    static_cast<AttentionGradArgs<T, Keys>&>(by_key) = common;
    by_key.dk = head_rows<T>(args.dk);
    by_key.dv = head_rows<T>(args.dv);
    launch(device, "attention dk dv", by_key,
           attention_blocks(n.batch, n.kv_heads, n.tk, Tile::kRows), kAttentionThreads,
           by_key.kShared);
  });
}

}  // namespace coshard::kernels::cuda
