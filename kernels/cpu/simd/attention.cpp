// Attention forward: blocks of queries against all keys they attend to; a block's scores stay in
// cache.
#include "kernels/cpu/simd/attention.h"

#include "kernels/cpu/simd/kernels.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

// Turns rows of scores from the block's first key on into exp(score - maximum of the row), 0 past
// the row's visible keys.
// Separate loops over all rows for each step keep the constants of the exponential in registers.
void softmax_in_place(Real* scores, std::int64_t wide, const BlockKeys& block, Real* highs,
                      Real* sums) {
  const std::int64_t rows = block.count;
  const std::int64_t begin = block.begin;
  const std::int64_t width = padded(block.end - begin);
  scores += begin;
  Vec totals[kQueryRows];
  for (std::int64_t r = 0; r < rows; ++r) {
    Vec high = all(-kInf);
    each_register(
        0,
        block.rows[r].end - begin, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          high = larger(high, lanes.load(scores + r * wide + i, -kInf));
        });
    highs[r] = largest_lane(high);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    Real* row = scores + r * wide;
    const std::int64_t keys = block.rows[r].end - begin;
    const Vec high = all(highs[r] == -kInf ? 0.0F : highs[r]);  // a row whose keys are all masked
    Vec total{};
    each_register(
        0, keys, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          const Vec power = exponential(lanes.load(row + i, -kInf) - high);
          total += power;
          store(row + i, power);
        });
    totals[r] = total;
    hide_rest(row, keys, width);
  }
  for (std::int64_t r = 0; r < rows; ++r) sums[r] = sum_lanes(totals[r]);
}

// From the rows' sums and maxima: inverse = 1/sum (0 for a fully masked row) and lse = high +
// log(sum).
void finish_rows(const Real* sums, const Real* highs, Real* inverse, Real* lse, std::int64_t rows) {
  each_register(
      0, rows, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec sum = lanes.load(sums + i);
        lanes.store(inverse + i, select(sum == Vec{}, Vec{}, 1.0F / sum));
        lanes.store(lse + i, lanes.load(highs + i) + logarithm(sum));
      });
}

struct Workspace {
  Real* keys;    // [dim][keys_width]: k transposed
  Real* values;  // [tk][width]
  Real* query;   // [kQueryRows][width]
  Real* scores;  // [kQueryRows][keys_width]
  Real* out;     // [kQueryRows][width]
};

void forward_block(const Attention& args, const AttentionSizes& n, const Workspace& w,
                   std::int64_t b, std::int64_t h, std::int64_t first) {
  const BlockKeys keys = block_keys(n, b, first);
  const std::int64_t rows = keys.count, begin = keys.begin, seen = keys.end;
  const std::int64_t width = n.width();
  pack_rows(w.query, rows_of(args.q, b, h, first), rows, n.dim, static_cast<Real>(args.scale));
  multiply(
      {w.query, width, 1, w.keys + begin, n.keys_width(), w.scores + begin, n.keys_width(), false},
      rows, seen - begin, n.dim);
  if (args.mask.data) add_mask(args.mask, b, h, first, rows, seen, w.scores, n.keys_width());
  hide_before_first(keys, w.scores, n.keys_width());
  Real sums[kQueryRows];
  Real highs[kQueryRows];
  Real inverse[kQueryRows];
  softmax_in_place(w.scores, n.keys_width(), keys, highs, sums);
  finish_rows(sums, highs, inverse, as<Real>(args.lse) + (b * n.heads + h) * n.tq + first, rows);
  multiply_seen(keys, n.dim, {w.scores, n.keys_width(), 1, w.values, width, w.out, width, false});
  for (std::int64_t r = 0; r < rows; ++r) {
    unpack_rows(rows_of(args.out, b, h, first + r), w.out + r * width, 1, n.dim, inverse[r]);
  }
}

void forward_group(const Attention& args, const AttentionSizes& n, std::int64_t b,
                   std::int64_t kv) {
  const Workspace w = {
      scratch_of<Real>(0, n.dim * n.keys_width()), scratch_of<Real>(1, n.tk * n.width()),
      scratch_of<Real>(2, kQueryRows * n.width()), scratch_of<Real>(3, kQueryRows * n.keys_width()),
      scratch_of<Real>(4, kQueryRows * n.width())};
  pack_transposed(w.keys, n.keys_width(), rows_of(args.k, b, kv, 0), n.tk, n.dim);
  pack_rows(w.values, rows_of(args.v, b, kv, 0), n.tk, n.dim, 1.0F);
  for (std::int64_t h = kv * n.group(); h < (kv + 1) * n.group(); ++h) {
    for (std::int64_t first = 0; first < n.tq; first += kQueryRows) {
      forward_block(args, n, w, b, h, first);
    }
  }
}

// One query, as in the generation of text: keys and values are read where they are. `scores` has
// room for those of all keys.
template <class T>
void forward_query(const Attention& args, const AttentionSizes& n, std::int64_t b, std::int64_t h,
                   Real* query, Real* scores) {
  const std::int64_t kv = h / n.group();
  const Keys keys = keys_of(n, b, 0);
  pack_rows(query, rows_of(args.q, b, h, 0), 1, n.dim, static_cast<Real>(args.scale));
  const auto row = [&](const View& of, std::int64_t j) __attribute__((always_inline)) {
    return as<T>(of.data) + b * of.strides[0] + kv * of.strides[1] + j * of.strides[2];
  };
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    const T* key = row(args.k, j);
    Vec sum{};
    each_register(
        0, n.dim, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          sum += lanes.load(query + i) * lanes.load(key + i);
        });
    scores[j - keys.begin] = sum_lanes(sum);
  }
  BlockKeys block;
  block.count = 1;
  block.begin = 0;
  block.end = keys.end - keys.begin;
  block.rows[0] = {0, block.end};
  if (args.mask.data) {
    View mask = args.mask;
    mask.data = element_at(mask.dtype, mask.data, keys.begin * mask.strides[3]);
    add_mask(mask, b, h, 0, 1, block.end, scores, 0);
  }
  Real sum, high, inverse;
  softmax_in_place(scores, 0, block, &high, &sum);
  finish_rows(&sum, &high, &inverse, as<Real>(args.lse) + b * n.heads + h, 1);
  T* out = as<T>(args.out.data) + b * args.out.strides[0] + h * args.out.strides[1];
  each_register(
      0, n.dim, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        Vec total{};
        for (std::int64_t j = keys.begin; j < keys.end; ++j)
          total += lanes.load(row(args.v, j) + i) * scores[j - keys.begin];
        lanes.store(out + i, total * inverse);
      });
}

}  // namespace

// Only called with last strides of 1.
void run(const Attention& args) {
  const AttentionSizes n = attention_sizes(args);
  if (n.tq == 1) {
    with_stored(args.q.dtype, [&](auto tag) {
      parallel(n.batch * n.heads, row_grain(n.tk * n.dim),
               [&](std::int64_t begin, std::int64_t end) {
                 Real* query = scratch_of<Real>(0, n.width());
                 Real* scores = scratch_of<Real>(1, n.keys_width());
                 for (std::int64_t i = begin; i < end; ++i)
                   forward_query<decltype(tag)>(args, n, i / n.heads, i % n.heads, query, scores);
               });
    });
    return;
  }
  parallel(n.batch * n.kv_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      forward_group(args, n, i / n.kv_heads, i % n.kv_heads);
    }
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
