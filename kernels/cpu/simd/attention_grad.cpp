// Attention backward: the probabilities of each block of queries are recomputed from lse; dk and dv
// of a key head are summed over its queries in a fixed order.
#include "kernels/cpu/simd/attention.h"
#include "kernels/cpu/simd/kernels.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

struct GradWorkspace {
  Real* keys;      // [tk][width]
  Real* keys_t;    // [dim][keys_width]
  Real* values_t;  // [dim][keys_width]
  Real* dkeys;     // [tk][width]
  Real* dvalues;   // [tk][width]
  Real* rows;      // query, dout, dq: 3 x [kQueryRows][width]
  Real* powers;    // [kQueryRows][keys_width]: probabilities
  Real* slopes;    // [kQueryRows][keys_width]: gradients of the scores
};

Real dot(const StoredRows& a, const StoredRows& b, std::int64_t dim) {
  Vec sum{};
  with_stored(a.dtype, [&](auto tag) {
    const auto* left = as<decltype(tag)>(a.data);
    const auto* right = as<decltype(tag)>(b.data);
    each_register(
        0, dim, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          sum += lanes.load(left + i) * lanes.load(right + i);
        });
  });
  return sum_lanes(sum);
}

// powers = exp(powers - lse), slopes = powers * (slopes - delta); both 0 past `keys` up to `width`.
COSHARD_INLINE void score_gradients(Real* powers, Real* slopes, std::int64_t keys,
                                    std::int64_t width, Real lse, Real delta) {
  each_register(
      0, keys, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec power = exponential(lanes.load(powers + i, -kInf) - lse);
        store(powers + i, power);
        store(slopes + i, power * (lanes.load(slopes + i) - delta));
      });
  hide_rest(powers, keys, width);
  hide_rest(slopes, keys, width);
}

void store_mask_gradient(const StoredRows& to, const Real* slopes, std::int64_t begin,
                         std::int64_t seen, std::int64_t keys) {
  std::memset(to.data, 0, begin * size_of(to.dtype));
  const StoredRows rest{to.dtype, element_at(to.dtype, to.data, begin), to.stride};
  unpack_rows(rest, slopes + begin, 1, seen - begin, 1.0F);
  std::memset(element_at(to.dtype, to.data, seen), 0, (keys - seen) * size_of(to.dtype));
}

void backward_block(const AttentionGrad& args, const AttentionSizes& n, const GradWorkspace& w,
                    std::int64_t b, std::int64_t h, std::int64_t first) {
  const BlockKeys block = block_keys(n, b, first);
  const std::int64_t rows = block.count, begin = block.begin, seen = block.end;
  const std::int64_t width = n.width();
  const std::int64_t wide = n.keys_width();
  const auto scale = static_cast<Real>(args.scale);
  Real* query = w.rows;
  Real* dout = query + kQueryRows * width;
  Real* dquery = dout + kQueryRows * width;
  pack_rows(query, rows_of(args.q, b, h, first), rows, n.dim, scale);
  pack_rows(dout, rows_of(args.dout, b, h, first), rows, n.dim, 1.0F);
  Real* powers = w.powers + begin;
  Real* slopes = w.slopes + begin;
  multiply({query, width, 1, w.keys_t + begin, wide, powers, wide, false}, rows, seen - begin,
           n.dim);
  multiply({dout, width, 1, w.values_t + begin, wide, slopes, wide, false}, rows, seen - begin,
           n.dim);
  if (args.mask.data) add_mask(args.mask, b, h, first, rows, seen, w.powers, wide);
  hide_before_first(block, w.powers, wide);
  const Real* lse = as<Real>(args.lse) + (b * n.heads + h) * n.tq + first;
  Real delta[kQueryRows];
  for (std::int64_t r = 0; r < rows; ++r) {
    delta[r] = dot(rows_of(args.dout, b, h, first + r), rows_of(args.out, b, h, first + r), n.dim);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t keys = lse[r] == -kInf ? 0 : block.rows[r].end - begin;
    score_gradients(powers + r * wide, slopes + r * wide, keys, padded(seen - begin), lse[r],
                    delta[r]);
    if (args.dmask.data)
      store_mask_gradient(rows_of(args.dmask, b, h, first + r), w.slopes + r * wide, begin, seen,
                          n.tk);
  }
  multiply_seen(block, n.dim, {w.slopes, wide, 1, w.keys, width, dquery, width, false});
  multiply({powers, 1, wide, dout, width, w.dvalues + begin * width, width, true}, seen - begin,
           n.dim, rows);
  multiply({slopes, 1, wide, query, width, w.dkeys + begin * width, width, true}, seen - begin,
           n.dim, rows);
  unpack_rows(rows_of(args.dq, b, h, first), dquery, rows, n.dim, scale);
}

void backward_group(const AttentionGrad& args, const AttentionSizes& n, std::int64_t b,
                    std::int64_t kv) {
  const std::int64_t packed = n.tk * n.width();
  const std::int64_t transposed = n.dim * n.keys_width();
  const GradWorkspace w = {scratch_of<Real>(0, packed),
                           scratch_of<Real>(1, transposed),
                           scratch_of<Real>(2, transposed),
                           scratch_of<Real>(3, packed),
                           scratch_of<Real>(4, packed),
                           scratch_of<Real>(5, 3 * kQueryRows * n.width()),
                           scratch_of<Real>(6, kQueryRows * n.keys_width()),
                           scratch_of<Real>(7, kQueryRows * n.keys_width())};
  const StoredRows k = rows_of(args.k, b, kv, 0);
  pack_rows(w.keys, k, n.tk, n.dim, 1.0F);
  pack_transposed(w.keys_t, n.keys_width(), k, n.tk, n.dim);
  pack_transposed(w.values_t, n.keys_width(), rows_of(args.v, b, kv, 0), n.tk, n.dim);
  std::memset(w.dkeys, 0, packed * sizeof(Real));
  std::memset(w.dvalues, 0, packed * sizeof(Real));
  for (std::int64_t h = kv * n.group(); h < (kv + 1) * n.group(); ++h) {
    for (std::int64_t first = 0; first < n.tq; first += kQueryRows) {
      backward_block(args, n, w, b, h, first);
    }
  }
  unpack_rows(rows_of(args.dk, b, kv, 0), w.dkeys, n.tk, n.dim, 1.0F);
  unpack_rows(rows_of(args.dv, b, kv, 0), w.dvalues, n.tk, n.dim, 1.0F);
}

}  // namespace

// Only called with last strides of 1.
void run(const AttentionGrad& args) {
  const AttentionSizes n = attention_sizes(args);
  parallel(n.batch * n.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      backward_group(args, n, i / n.kv_heads, i % n.kv_heads);
    }
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
