// Attention backward on tensor cores: dq by blocks over queries, dk and dv by blocks over keys,
// each with its own pass over the scores. While one pair of tiles is used the next is on its way.
// Every sum has one order: the bits repeat.
#include <cmath>

#include "kernels/cuda/attention_mma.h"

namespace coshard::kernels::cuda {
namespace {

struct MmaGradArgs {
  AttentionSizes n;
  HeadRows<const BFloat16> q, k, v, dout;
  const float* lse;
  const float* delta;
  float scale;

  // What a query's row brings: p = 2^(score * scale * log2 e - high), slope = p * (dp - delta).
  struct Query {
    float high, delta;
  };
  // A query that is none, or saw nothing, gets high = inf: p = 0.
  CS_BODY Query query(std::int64_t b, std::int64_t h, std::int64_t i) const {
    if (i >= n.tq) return {kInfinity, 0.0F};
    const std::int64_t at = (b * n.heads + h) * n.tq + i;
    const float l = lse[at];
    return {l == -kInfinity ? kInfinity : l * kLog2E, delta[at]};
  }
};

// A distance of queries and keys, as far as a tile can tell.
CS_BODY int mma_distance(std::int64_t distance) {
  return static_cast<int>(distance < -1024 ? -1024 : distance > 1024 ? 1024 : distance);
}

template <int kDim>
struct AttentionMmaDqKernel : KernelTraits<kMmaThreads, true>, MmaGradArgs {
  using Tile = MmaTile<kDim>;
  static constexpr int kQueries = 16 * kMmaWarps;
  static constexpr int kKeys = 64;
  static constexpr std::size_t kShared =
      sizeof(BFloat16) * kDim * static_cast<std::size_t>(2 * kQueries + 4 * kKeys);
  HeadRows<BFloat16> dq;
  using Products = FragmentC[1][kKeys / 8];

  CS_BODY void operator()(Block& block) const {
    const AttentionPlace at = attention_place(block.index(), n.heads, n.tq, kQueries, n.causal);
    const std::int64_t rows = n.tq - at.first;
    BFloat16* queries = block.shared<BFloat16>();
    BFloat16* douts = queries + kQueries * kDim;
    BFloat16* stages = douts + kQueries * kDim;  // two of keys and values
    const int row = block.warp() * 16;
    const std::int64_t end = n.visible((rows < kQueries ? n.tq : at.first + kQueries) - 1);
    Tile::copy(block, queries, kQueries, q.at(at.batch, at.head, at.first), q.row, rows);
    Tile::copy(block, douts, kQueries, dout.at(at.batch, at.head, at.first), dout.row, rows);
    if (end > 0) copy_keys(block, stages, at, 0);
    block.commit_copies();
    Query mine[2];
    for (int half = 0; half < 2; ++half)
      mine[half] = query(at.batch, at.head, at.first + row + 8 * half + block.lane() / 4);
    FragmentC result[1][kDim / 8] = {};
    BFloat16* here = stages;
    BFloat16* next = stages + 2 * kKeys * kDim;
    for (std::int64_t j = 0; j < end; j += kKeys) {
      block.wait_copies<0>();
      block.barrier();  // this stage is there; the other is no longer read
      if (j + kKeys < end) copy_keys(block, next, at, j + kKeys);
      block.commit_copies();
      Products scores{}, slopes{};
      Tile::multiply_transposed(block, scores, queries, row, here);
      Tile::multiply_transposed(block, slopes, douts, row, here + kKeys * kDim);
      weigh(block, scores, slopes, mine, at.first + row, j);
      Tile::multiply(block, result, slopes, here);
      BFloat16* used = here;
      here = next;
      next = used;
    }
    block.wait_copies<0>();
    block.barrier();
    const float factor[1][2] = {{scale, scale}};
    Tile::write(block, result, factor, queries, row, dq.at(at.batch, at.head, at.first), dq.row,
                rows);
  }

  CS_BODY void copy_keys(Block& block, BFloat16* stage, const AttentionPlace& at,
                         std::int64_t first) const {
    const std::int64_t kv = n.kv_head(at.head);
    Tile::copy(block, stage, kKeys, k.at(at.batch, kv, first), k.row, n.tk - first);
    Tile::copy(block, stage + kKeys * kDim, kKeys, v.at(at.batch, kv, first), v.row, n.tk - first);
  }

  CS_BODY void weigh(Block& block, const Products& scores, Products& slopes, const Query (&mine)[2],
                     std::int64_t first_query, std::int64_t first_key) const {
    CS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = first_query + 8 * half + block.lane() / 4;
      const int seen = mma_distance(n.visible(i) - first_key) - block.lane() % 4 * 2;
      CS_UNROLL
      for (int c = 0; c < kKeys / 8; ++c) {
        CS_UNROLL
        for (int e = 0; e < 2; ++e) {
          const float score = scores[0][c].at[2 * half + e];
          float& slope = slopes[0][c].at[2 * half + e];
          const float p = quick_exp2(score * (scale * kLog2E) - mine[half].high);
          slope = 8 * c + e < seen ? p * (slope - mine[half].delta) : 0.0F;
        }
      }
    }
  }
};

// Products are kept transposed, a row for each key, so that they are operands where they are.
template <int kDim>
struct AttentionMmaDkvKernel : KernelTraits<kMmaThreads, true>, MmaGradArgs {
  using Tile = MmaTile<kDim>;
  static constexpr int kKeys = 16 * kMmaWarps;
  static constexpr int kQueries = kDim == 64 ? 64 : 32;
  static constexpr int kStage = 2 * kQueries * kDim;  // queries and douts
  static constexpr std::size_t kTiles =
      sizeof(BFloat16) * static_cast<std::size_t>(2 * kKeys * kDim + 2 * kStage);
  static constexpr std::size_t kShared = kTiles + 2 * kQueries * sizeof(Query);
  HeadRows<BFloat16> dk, dv;

  struct Turn {
    std::int64_t head, first;  // of the queries
  };
  struct Sums {
    FragmentC dk[1][kDim / 8], dv[1][kDim / 8];
  };

  CS_BODY void operator()(Block& block) const {
    const AttentionPlace at = attention_place(block.index(), n.kv_heads, n.tk, kKeys, false);
    const std::int64_t rows = n.tk - at.first;
    BFloat16* keys = block.shared<BFloat16>();
    BFloat16* values = keys + kKeys * kDim;
    BFloat16* tiles = values + kKeys * kDim;
    Query* queries = block.shared<Query>(kTiles);
    const int row = block.warp() * 16;
    const std::int64_t group = n.heads / n.kv_heads;
    const std::int64_t begin = n.first_query(at.first) / kQueries * kQueries;
    Tile::copy(block, keys, kKeys, k.at(at.batch, at.head, at.first), k.row, rows);
    Tile::copy(block, values, kKeys, v.at(at.batch, at.head, at.first), v.row, rows);
    Sums sums{};
    Turn turn{at.head * group, begin};
    const bool any = begin < n.tq;
    if (any) copy_queries(block, tiles, at.batch, turn);
    block.commit_copies();
    if (any) keep(block, queries, query_of(block, at.batch, turn));
    for (int stage = 0; any && turn.head < (at.head + 1) * group; stage ^= 1) {
      block.wait_copies<0>();
      block.barrier();  // this stage is there; the other is no longer read
      Turn next{turn.head, turn.first + kQueries};
      if (next.first >= n.tq) next = {turn.head + 1, begin};
      const bool more = next.head < (at.head + 1) * group;
      if (more) copy_queries(block, tiles + (stage ^ 1) * kStage, at.batch, next);
      block.commit_copies();
      Query later{};
      if (more) later = query_of(block, at.batch, next);
      add(block, sums, keys, tiles + stage * kStage, queries + stage * kQueries, at.first + row,
          turn.first);
      if (more) keep(block, queries + (stage ^ 1) * kQueries, later);
      turn = next;
    }
    block.wait_copies<0>();
    block.barrier();
    finish(block, sums, keys, row, at);
  }

  // Writes the sums by way of the keys and values, which are no longer read.
  CS_BODY void finish(Block& block, const Sums& sums, BFloat16* keys, int row,
                      const AttentionPlace& at) const {
    const std::int64_t rows = n.tk - at.first;
    const float one[1][2] = {{1.0F, 1.0F}};
    const float factor[1][2] = {{scale, scale}};
    Tile::write(block, sums.dk, factor, keys, row, dk.at(at.batch, at.head, at.first), dk.row,
                rows);
    Tile::write(block, sums.dv, one, keys + kKeys * kDim, row, dv.at(at.batch, at.head, at.first),
                dv.row, rows);
  }

  CS_BODY void copy_queries(Block& block, BFloat16* stage, std::int64_t batch,
                            const Turn& turn) const {
    Tile::copy(block, stage, kQueries, q.at(batch, turn.head, turn.first), q.row,
               n.tq - turn.first);
    Tile::copy(block, stage + kQueries * kDim, kQueries, dout.at(batch, turn.head, turn.first),
               dout.row, n.tq - turn.first);
  }
  // The first threads carry a query each from global to shared memory.
  CS_BODY Query query_of(Block& block, std::int64_t batch, const Turn& turn) const {
    return block.thread() < kQueries ? query(batch, turn.head, turn.first + block.thread())
                                     : Query{};
  }
  CS_BODY void keep(Block& block, Query* to, const Query& query) const {
    if (block.thread() < kQueries) to[block.thread()] = query;
  }

  // Adds what the queries of a stage say to the warp's keys, which begin with `first_key`. Keys
  // past the last are zeros, and what they get is not written.
  CS_BODY void add(Block& block, Sums& sums, BFloat16* keys, BFloat16* stage, const Query* queries,
                   std::int64_t first_key, std::int64_t first_query) const {
    const int row = block.warp() * 16;
    FragmentC weights[1][kQueries / 8] = {};
    FragmentC slopes[1][kQueries / 8] = {};
    Tile::multiply_transposed(block, weights, keys, row, stage);
    Tile::multiply_transposed(block, slopes, keys + kKeys * kDim, row, stage + kQueries * kDim);
    // Query `column` sees key `r` of the warp's from column = r + unseen on.
    const int unseen = n.causal ? mma_distance(first_key - first_query - n.diagonal) : -1024;
    CS_UNROLL
    for (int c = 0; c < kQueries / 8; ++c) {
      CS_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * c + block.lane() % 4 * 2 + e;
        const Query query = queries[column];
        CS_UNROLL
        for (int half = 0; half < 2; ++half) {
          float& p = weights[0][c].at[2 * half + e];
          float& slope = slopes[0][c].at[2 * half + e];
          const bool sees = column - unseen >= 8 * half + block.lane() / 4;
          p = sees ? quick_exp2(p * (scale * kLog2E) - query.high) : 0.0F;
          slope = p * (slope - query.delta);
        }
      }
    }
    Tile::multiply(block, sums.dv, weights, stage + kQueries * kDim);
    Tile::multiply(block, sums.dk, slopes, stage);
  }
};

template <int kDim>
void launch_attention_mma_grad(CudaDevice& device, const MmaGradArgs& common,
                               const AttentionGrad& args) {
  const AttentionSizes& n = common.n;
  using ByQuery = AttentionMmaDqKernel<kDim>;
  ByQuery by_query{};
  static_cast<MmaGradArgs&>(by_query) = common;
  by_query.dq = head_rows<BFloat16>(args.dq);
  launch(device, "attention mma dq", by_query,
         attention_blocks(n.batch, n.heads, n.tq, ByQuery::kQueries), kMmaThreads,
         ByQuery::kShared);
  using ByKey = AttentionMmaDkvKernel<kDim>;
  ByKey by_key{};
  static_cast<MmaGradArgs&>(by_key) = common;
  by_key.dk = head_rows<BFloat16>(args.dk);
  by_key.dv = head_rows<BFloat16>(args.dv);
  launch(device, "attention mma dk dv", by_key,
         attention_blocks(n.batch, n.kv_heads, n.tk, ByKey::kKeys), kMmaThreads, ByKey::kShared);
}

}  // namespace

bool attention_by_mma(CudaDevice& device, const AttentionSizes& n, const AttentionGrad& args,
                      const float* delta) {
  if (!fits_mma(device, n, args.mask, args.scale) || args.dmask.data != nullptr) return false;
  for (const View* view : {&args.q, &args.k, &args.v, &args.dout, &args.dq, &args.dk, &args.dv})
    if (!fits_mma(*view)) return false;
  MmaGradArgs common{};
  common.n = n;
  common.q = head_rows<const BFloat16>(args.q);
  common.k = head_rows<const BFloat16>(args.k);
  common.v = head_rows<const BFloat16>(args.v);
  common.dout = head_rows<const BFloat16>(args.dout);
  common.lse = as<float>(args.lse);
  common.delta = delta;
  common.scale = static_cast<float>(args.scale);
  n.dim == 64 ? launch_attention_mma_grad<64>(device, common, args)
              : launch_attention_mma_grad<128>(device, common, args);
  return true;
}

}  // namespace coshard::kernels::cuda
