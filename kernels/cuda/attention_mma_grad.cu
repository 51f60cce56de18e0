// Attention backward on tensor cores: dq by blocks over queries, dk and dv by blocks over keys,
// each with a separate pass over the scores. The next pair of tiles is loaded while one is in use.
//
// That takes 7 matmuls where one pass would need 5. In one pass, each block over keys would add to
// the dq of all queries: either by atomics, which are not deterministic, or, deterministically,
// into an f32 copy of dq for each of a head's concurrent blocks. For 32 causal heads of 4096 x 128
// on 132 multiprocessors that is 5 copies of 64 MiB to which 1 GiB is added: more than 0.6 ms at
// 3.35 TB/s, whereas two more matmuls are 0.14 TFLOP, 0.4 ms at 350 TFLOP/s. Nothing is stored
// here.
#include <cmath>

#include "kernels/cuda/attention_mma.h"

namespace coshard::kernels::cuda {
namespace {

// The statistics of a query's row: p = 2^(score * unit - high), slope = p * (dp - delta).
struct MmaGradQuery {
  float high, delta;
};

template <class T>
struct MmaGradArgs : MmaArgs<T> {
  HeadRows<const T> dout;
  const float* lse;
  const float* delta;

  // A query that does not exist or is fully masked gets high = inf: p = 0.
  CS_BODY MmaGradQuery query(int b, int h, int i) const {
    const MmaSizes& n = this->n;
    if (i >= n.tq) return {kInfinity, 0.0F};
    const std::int64_t at = std::int64_t{b * n.heads + h} * n.tq + i;
    const float l = lse[at];
    return {l == -kInfinity ? kInfinity : l * kLog2E, delta[at]};
  }
};

constexpr int kGradWarps = 4;

template <class T, int kDim>
struct AttentionMmaDqKernel : KernelTraits<kGradWarps * kWarp, true>, MmaGradArgs<T> {
  static constexpr int kM = kDim <= 128 ? 2 : 1;
  using Tile = MmaTile<T, kDim, kGradWarps>;
  static constexpr int kQueries = 16 * kM * kGradWarps;
  static constexpr int kKeys = kDim == 64 ? 48 : kDim == 256 ? 16 : 32;
  static constexpr std::size_t kShared =
      sizeof(T) * kDim * static_cast<std::size_t>(2 * kQueries + 4 * kKeys);
  static_assert(kShared <= kSharedOfEvery);
  HeadRows<T> dq;
  HeadRows<T> dmask;  // data null: not requested
  using Products = FragmentC[kM][kKeys / 8];

  CS_BODY void operator()(Block& block) const {
    const MmaSizes& n = this->n;
    const bool causal = n.diagonal < n.tk;
    const MmaPlace at =
        alike(block, mma_place(static_cast<int>(block.index()), n.heads, n.tq, kQueries, causal));
    const int rows = n.tq - at.first;
    T* queries = block.shared<T>();
    T* douts = queries + kQueries * kDim;
    T* here = douts + kQueries * kDim;  // keys and values
    T* next = here + 2 * kKeys * kDim;
    const int row = alike(block, block.warp()) * 16 * kM;
    int end = n.visible((rows < kQueries ? n.tq : at.first + kQueries) - 1);
    if (dmask.data != nullptr) end = n.tk;
    Tile::template copy<kQueries>(block, queries, this->q, at.batch, at.head, at.first, n.tq,
                                  n.dim);
    Tile::template copy<kQueries>(block, douts, this->dout, at.batch, at.head, at.first, n.tq,
                                  n.value_dim);
    if (end > 0) copy_keys(block, here, at, 0);
    block.commit_copies();
    MmaGradQuery mine[kM][2];
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int half = 0; half < 2; ++half)
        mine[m][half] =
            this->query(at.batch, at.head, at.first + row + 16 * m + 8 * half + block.lane() / 4);
    }
    FragmentC result[kM][kDim / 8] = {};
    for (int j = 0; j < end; j += kKeys) {
      block.template wait_copies<0>();
      block.barrier();  // this stage is there; the other is no longer read
      if (j + kKeys < end) copy_keys(block, next, at, j + kKeys);
      block.commit_copies();
      Products scores{}, slopes{};
      Tile::multiply_transposed(block, scores, queries, row, here);
      Tile::multiply_transposed(block, slopes, douts, row, here + kKeys * kDim);
      if (this->shown || j + kKeys > n.visible(at.first + row))
        this->show(block, scores, at.batch, j, [&](int r) {
          return MmaQuery{at.head, at.first + row + r};
        });
      weigh(scores, slopes, mine);
      if (dmask.data != nullptr) tell(block, slopes, at, row, j);
      Tile::multiply(block, result, slopes, here);
      T* used = here;
      here = next;
      next = used;
    }
    block.template wait_copies<0>();
    block.barrier();
    finish(block, result, queries, row, at);
  }

  CS_BODY void copy_keys(Block& block, T* stage, const MmaPlace& at, int first) const {
    const MmaSizes& n = this->n;
    const int kv = at.head / n.group();
    Tile::template copy<kKeys>(block, stage, this->k, at.batch, kv, first, n.tk, n.dim);
    Tile::template copy<kKeys>(block, stage + kKeys * kDim, this->v, at.batch, kv, first, n.tk,
                               n.value_dim);
  }

  CS_BODY void weigh(const Products& scores, Products& slopes,
                     const MmaGradQuery (&mine)[kM][2]) const {
    const float unit = this->unit();
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int c = 0; c < kKeys / 8; ++c) {
        CS_UNROLL
        for (int e = 0; e < 4; ++e) {
          float& slope = slopes[m][c].at[e];
          slope = quick_exp2(scores[m][c].at[e] * unit - mine[m][e / 2].high) *
                  (slope - mine[m][e / 2].delta);
        }
      }
    }
  }

  // Writes the slopes, which are the gradient of the mask.
  CS_BODY void tell(Block& block, const Products& slopes, const MmaPlace& at, int row,
                    int first_key) const {
    const int lane = afresh(block.lane());
    const int first = first_key + lane % 4 * 2;
    CS_UNROLL
    for (int m = 0; m < kM; ++m) {
      CS_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int i = at.first + row + 16 * m + 8 * half + lane / 4;
        T* to = dmask.at(at.batch, at.head, i) + first;
        const int there = i < this->n.tq ? this->n.tk - first : 0;
        CS_UNROLL
        for (int c = 0; c < kKeys; c += 8) {
          CS_UNROLL
          for (int e = 0; e < 2; ++e)
            if (c + e < there) to[c + e] = static_cast<T>(slopes[m][c / 8].at[2 * half + e]);
        }
      }
    }
  }

  CS_BODY void finish(Block& block, const FragmentC (&result)[kM][kDim / 8], T* stage, int row,
                      const MmaPlace& at) const {
    float factor[kM][2];
    for (auto& both : factor) both[0] = both[1] = this->scale;
    T* first = dq.at(at.batch, at.head, at.first);
    Tile::write(block, result, factor, stage, row, this->n.tq - at.first, this->n.dim,
                dq.pieces && this->n.dim % 8 == 0, [&](int r) { return first + r * dq.row; });
  }
};

// Scores are kept transposed, one row per key, so that their fragments serve as operands in place.
// Half of the warps compute p and accumulate dv, the others dp and dk; each of the former passes
// its p to the warp with the same keys.
template <class T, int kDim>
struct AttentionMmaDkvKernel : KernelTraits<(kDim <= 128 ? 4 : 8) * kWarp, true>, MmaGradArgs<T> {
  static constexpr int kWarps = AttentionMmaDkvKernel::kMaxThreads / kWarp;
  static constexpr int kM = kDim <= 128 ? 2 : 1;
  using Tile = MmaTile<T, kDim, kWarps>;
  static constexpr int kPairs = kWarps / 2;
  static constexpr int kKeys = 16 * kM * kPairs;
  static constexpr int kQueries = kDim == 64 ? 64 : kDim <= 128 ? 32 : 16;
  static constexpr int kStage = 2 * kQueries * kDim;  // queries and douts
  static constexpr std::size_t kTiles =
      sizeof(T) * static_cast<std::size_t>(2 * kKeys * kDim + 2 * kStage);
  static constexpr std::size_t kRows = 2 * kQueries * sizeof(MmaGradQuery);
  static constexpr std::size_t kShared = kTiles + kRows + sizeof(T) * kKeys * kQueries;
  static_assert(kShared <= kSharedOfEvery);
  HeadRows<T> dk, dv;

  struct Turn {
    int head, first;  // of the queries
  };
  // The role of a warp.
  struct Part {
    int of_values;  // or of the keys
    int pair, row;  // row: of the block's keys
  };
  struct Lent {
    std::uint32_t at[2];
  };
  using Products = FragmentC[kM][kQueries / 8];

  CS_BODY void operator()(Block& block) const {
    const MmaSizes& n = this->n;
    const MmaPlace at =
        alike(block, mma_place(static_cast<int>(block.index()), n.kv_heads, n.tk, kKeys, false));
    T* keys = block.shared<T>();
    T* values = keys + kKeys * kDim;
    T* tiles = values + kKeys * kDim;
    MmaGradQuery* queries = block.shared<MmaGradQuery>(kTiles);
    const int warp = alike(block, block.warp());
    const Part part{warp < kPairs ? 1 : 0, warp % kPairs, warp % kPairs * 16 * kM};
    const int begin = n.first_query(at.first) / kQueries * kQueries;
    const int last = (at.head + 1) * n.group();
    Tile::template copy<kKeys>(block, keys, this->k, at.batch, at.head, at.first, n.tk, n.dim);
    Tile::template copy<kKeys>(block, values, this->v, at.batch, at.head, at.first, n.tk,
                               n.value_dim);
    FragmentC sums[kM][kDim / 8] = {};
    Turn turn{begin < n.tq ? at.head * n.group() : last, begin};
    if (turn.head < last) copy_queries(block, tiles, at.batch, turn);
    block.commit_copies();
    if (turn.head < last) keep(block, queries, query_of(block, at.batch, turn));
    for (int stage = 0; turn.head < last; stage ^= 1) {
      block.template wait_copies<0>();
      block.barrier();  // this stage is there; the other is no longer read
      Turn next{turn.head, turn.first + kQueries};
      if (next.first >= n.tq) next = {turn.head + 1, begin};
      const bool more = next.head < last;
      if (more) copy_queries(block, tiles + (stage ^ 1) * kStage, at.batch, next);
      block.commit_copies();
      MmaGradQuery later{};
      if (more) later = query_of(block, at.batch, next);
      add(block, sums, part, keys, tiles + stage * kStage, queries + stage * kQueries, at, turn);
      if (more) keep(block, queries + (stage ^ 1) * kQueries, later);
      turn = next;
    }
    block.template wait_copies<0>();
    block.barrier();
    finish(block, sums, part, part.of_values != 0 ? values : keys, at);
  }

  CS_BODY void copy_queries(Block& block, T* stage, int batch, const Turn& turn) const {
    const MmaSizes& n = this->n;
    Tile::template copy<kQueries>(block, stage, this->q, batch, turn.head, turn.first, n.tq, n.dim);
    Tile::template copy<kQueries>(block, stage + kQueries * kDim, this->dout, batch, turn.head,
                                  turn.first, n.tq, n.value_dim);
  }
  // The first threads each load one query's statistics from global to shared memory.
  CS_BODY MmaGradQuery query_of(Block& block, int batch, const Turn& turn) const {
    return block.thread() < kQueries ? this->query(batch, turn.head, turn.first + block.thread())
                                     : MmaGradQuery{};
  }
  CS_BODY void keep(Block& block, MmaGradQuery* to, const MmaGradQuery& query) const {
    if (block.thread() < kQueries) to[block.thread()] = query;
  }

  // Adds the contributions of a stage's queries to the warp's keys. Keys past the last are zeros,
  // and their sums are not written.
  CS_BODY void add(Block& block, FragmentC (&sums)[kM][kDim / 8], const Part& part, const T* keys,
                   const T* stage, const MmaGradQuery* queries, const MmaPlace& at,
                   const Turn& turn) const {
    const bool of_values = part.of_values != 0;
    const T* douts = stage + kQueries * kDim;
    Lent* lent = block.shared<Lent>(kTiles + kRows) + part.pair * kM * (kQueries / 8) * kWarp;
    Products products{};
    Tile::multiply_transposed(block, products, of_values ? keys : keys + kKeys * kDim, part.row,
                              of_values ? stage : douts);
    if (of_values) {
      const int first_key = at.first + part.row;
      if (this->shown || this->n.visible(turn.first) < first_key + 16 * kM)
        show_transposed(block, products, at.batch, turn, first_key);
      lend(block, products, queries, lent);
    }
    block.barrier();
    if (!of_values) slope(block, products, queries, lent);
    Tile::multiply(block, sums, products, of_values ? douts : stage);
  }

  // Like show(), for scores whose rows are keys.
  CS_BODY void show_transposed(Block& block, Products& scores, int b, const Turn& turn,
                               int first_key) const {
    const MmaSizes& n = this->n;
    const MmaMask<T>& mask = this->mask;
    const int lane = afresh(block.lane());
    const int key = first_key + lane / 4;
    const float unit = this->shown_unit();
    CS_UNROLL
    for (int c = 0; c < kQueries / 8; ++c) {
      CS_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int i = turn.first + 8 * c + lane % 4 * 2 + e;
        const int seen = i < n.tq ? n.visible(i) - key : 0;
        const T* added = mask.data + b * mask.batch + turn.head * mask.head + i * mask.query + key;
        CS_UNROLL
        for (int r = 0; r < 16 * kM; r += 8) {
          float& score = scores[r / 16][c].at[r / 8 % 2 * 2 + e];
          float more = 0;
          if (mask.data != nullptr && r < seen) more = static_cast<float>(added[r]) * kLog2E;
          score = r < seen ? score * unit + more : -kInfinity;
        }
      }
    }
  }

  CS_BODY void lend(Block& block, Products& scores, const MmaGradQuery* queries, Lent* lent) const {
    const float unit = this->unit();
    CS_UNROLL
    for (int c = 0; c < kQueries / 8; ++c) {
      const MmaGradQuery* pair = queries + 8 * c + block.lane() % 4 * 2;
      const float high[2] = {pair[0].high, pair[1].high};
      CS_UNROLL
      for (int m = 0; m < kM; ++m) {
        float(&p)[4] = scores[m][c].at;
        CS_UNROLL
        for (int e = 0; e < 4; ++e) p[e] = quick_exp2(p[e] * unit - high[e % 2]);
        lent[(m * (kQueries / 8) + c) * kWarp + block.lane()] = {
            {pack<T>(p[0], p[1]), pack<T>(p[2], p[3])}};
      }
    }
  }

  CS_BODY void slope(Block& block, Products& slopes, const MmaGradQuery* queries,
                     const Lent* lent) const {
    CS_UNROLL
    for (int c = 0; c < kQueries / 8; ++c) {
      const MmaGradQuery* pair = queries + 8 * c + block.lane() % 4 * 2;
      const float delta[2] = {pair[0].delta, pair[1].delta};
      CS_UNROLL
      for (int m = 0; m < kM; ++m) {
        const Lent p = lent[(m * (kQueries / 8) + c) * kWarp + block.lane()];
        CS_UNROLL
        for (int e = 0; e < 4; ++e) {
          float& slope = slopes[m][c].at[e];
          slope = half_of<T>(p.at[e / 2], e % 2) * (slope - delta[e % 2]);
        }
      }
    }
  }

  // Writes the sums, staged in the memory of the keys or values, which are no longer read.
  CS_BODY void finish(Block& block, const FragmentC (&sums)[kM][kDim / 8], const Part& part,
                      T* stage, const MmaPlace& at) const {
    const MmaSizes& n = this->n;
    const bool of_values = part.of_values != 0;
    float factor[kM][2];
    for (auto& both : factor) both[0] = both[1] = of_values ? 1.0F : this->scale;
    const HeadRows<T>& to = of_values ? dv : dk;
    const int width = of_values ? n.value_dim : n.dim;
    T* first = to.at(at.batch, at.head, at.first);
    const std::int64_t stride = to.row;
    Tile::write(block, sums, factor, stage, part.row, n.tk - at.first, width,
                to.pieces && width % 8 == 0, [&](int r) { return first + r * stride; });
  }
};

template <class T, int kDim>
void launch_attention_mma_grad(CudaDevice& device, const MmaGradArgs<T>& common,
                               const AttentionGrad& args) {
  const MmaSizes& n = common.n;
  using ByQuery = AttentionMmaDqKernel<T, kDim>;
  ByQuery by_query{};
  static_cast<MmaGradArgs<T>&>(by_query) = common;
  by_query.dq = head_rows<T>(args.dq);
  by_query.dmask = head_rows<T>(args.dmask);
  launch(device, "attention mma dq", by_query,
         attention_blocks(n.batch, n.heads, n.tq, ByQuery::kQueries), ByQuery::kMaxThreads,
         ByQuery::kShared);
  using ByKey = AttentionMmaDkvKernel<T, kDim>;
  ByKey by_key{};
  static_cast<MmaGradArgs<T>&>(by_key) = common;
  by_key.dk = head_rows<T>(args.dk);
  by_key.dv = head_rows<T>(args.dv);
  launch(device, "attention mma dk dv", by_key,
         attention_blocks(n.batch, n.kv_heads, n.tk, ByKey::kKeys), ByKey::kMaxThreads,
         ByKey::kShared);
}

}  // namespace

void attention_mma(CudaDevice& device, const AttentionSizes& n, const AttentionGrad& args,
                   const float* delta) {
  const int width = std::max(n.dim, n.value_dim);
  with_mma_tile<64, 96, 128, 192, 256>(args.q.dtype, width, [&](auto tag, auto dim) {
    using T = decltype(tag);
    std::shared_ptr<Buffer> mask;
    MmaGradArgs<T> common{};
    set_mma_args(device, common, n, args, mask);
    common.dout = head_rows<const T>(args.dout);
    common.lse = as<float>(args.lse);
    common.delta = delta;
    launch_attention_mma_grad<T, dim()>(device, common, args);
  });
}

}  // namespace coshard::kernels::cuda
