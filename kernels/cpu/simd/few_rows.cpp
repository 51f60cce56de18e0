// Products of few rows: columns of b pass through registers once, for all rows of a.
#include "kernels/cpu/few_rows.h"

#include <algorithm>

#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "kernels/cpu/simd/vec.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

// The rows of a, widened: [rows][depth], and zeros up to the rows of a body.
template <class T>
const float* widened(const FewRows& args, std::int64_t rows) {
  const std::int64_t depth = args.a.columns;
  float* to = scratch(0, static_cast<std::size_t>(rows * depth));
  std::fill(to + args.a.rows * depth, to + rows * depth, 0.0F);
  for (std::int64_t r = 0; r < args.a.rows; ++r) {
    const T* from = as<T>(static_cast<const void*>(args.a.data)) + r * args.a.row_stride;
    each_register(
        0, depth, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          lanes.store(to + r * depth + i, lanes.load(from + i));
        });
  }
  return to;
}

// out[0, rows)[n, n + kColumns), rows <= kRows; a has kRows. Two sums of each, over the even and the odd registers, keep the
// multipliers busy. The next columns are prefetched: the hardware follows few streams, and these
// are too short for it.
template <int kRows, int kColumns, class T>
COSHARD_INLINE void multiply_columns(const FewRows& args, const float* a, std::int64_t n) {
  const std::int64_t depth = args.a.columns;
  const T* columns = as<T>(static_cast<const void*>(args.b.data)) + n * args.b.column_stride;
  constexpr int kParts = 2;
  Vec sums[kParts][kColumns][kRows] = {};
  const auto add = [&](int part, std::int64_t i, auto lanes) __attribute__((always_inline)) {
    Vec b[kColumns];
    for (int c = 0; c < kColumns; ++c) b[c] = lanes.load(columns + c * args.b.column_stride + i);
    for (int r = 0; r < kRows; ++r) {
      const Vec x = lanes.load(a + r * depth + i);
      for (int c = 0; c < kColumns; ++c) sums[part][c][r] += x * b[c];
    }
  };
  std::int64_t i = 0;
  for (; i + kParts * kLanes <= depth; i += kParts * kLanes) {
    for (int c = 0; c < kColumns; ++c)
      for (std::size_t byte = 0; byte < kParts * kLanes * sizeof(T); byte += 64)
        __builtin_prefetch(columns + (kColumns + c) * args.b.column_stride + i +
                           static_cast<std::int64_t>(byte / sizeof(T)));
    for (int part = 0; part < kParts; ++part) add(part, i + part * kLanes, Whole{});
  }
  for (; i + kLanes <= depth; i += kLanes) add(0, i, Whole{});
  if (i < depth) add(0, i, Part{depth - i});
  for (int r = 0; r < static_cast<int>(args.a.rows); ++r) {
    T* out = as<T>(args.out.data) + r * args.out.row_stride + n;
    for (int c = 0; c < kColumns; ++c) {
      float value = args.alpha * sum_lanes(sums[0][c][r] + sums[1][c][r]);
      if (args.beta != 0) value += args.beta * static_cast<float>(out[c]);
      out[c] = static_cast<T>(value);
    }
  }
}

template <int kRows, class T>
void multiply_rows(const FewRows& args, const float* a, std::int64_t begin, std::int64_t end) {
  constexpr int kColumns = kRows <= 2 ? 4 : kRows <= 4 ? 2 : 1;  // 32 registers hold their sums
  std::int64_t n = begin;
  for (; n + kColumns <= end; n += kColumns) multiply_columns<kRows, kColumns, T>(args, a, n);
  for (; n < end; ++n) multiply_columns<kRows, 1, T>(args, a, n);
}

using RowsBody = void (*)(const FewRows& args, const float* a, std::int64_t begin,
                          std::int64_t end);
// For 1, 2, 4 and 8 rows; more of them would be code for little.
template <class T>
constexpr RowsBody kBodies[] = {multiply_rows<1, T>, multiply_rows<2, T>, multiply_rows<4, T>,
                                multiply_rows<8, T>};
static_assert(kMostFewRows == 8);

}  // namespace

void run(const FewRows& args) {
  const auto run_as = [&](auto tag) {
    using T = decltype(tag);
    int body = 0;
    while (std::int64_t{1} << body < args.a.rows) ++body;
    const float* a = widened<T>(args, std::int64_t{1} << body);
    const std::int64_t grain = row_grain(args.a.columns * args.a.rows);
    parallel(args.out.columns, grain,
             [&](std::int64_t begin, std::int64_t end) { kBodies<T>[body](args, a, begin, end); });
  };
  args.dtype == DType::BF16 ? run_as(BFloat16{}) : run_as(float{});
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
