// Matmul in blocks of packed panels, for f64, f16 and what oneDNN does not take. Each element is one
// sum in ascending order, whatever the number of threads and the other rows and columns are. Narrow
// types are widened as they are packed.
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/gemm.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "kernels/cpu/simd/strided.h"
#include "kernels/matrix.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

constexpr std::int64_t kDepth = 384;       // of the panels
constexpr std::int64_t kPackedRows = 192;  // rows of a that are packed at a time, for the L2 cache
constexpr std::int64_t kMostRows = 768, kMostColumns = 1536;  // of the result
constexpr std::int64_t kReadRows = 8;  // of an operand that are packed at a time, along the rows
constexpr std::int64_t kThreadProducts = 1 << 18;  // products that are worth a thread
// With few rows or columns the other operand is read where it is, if it can be; and so is an a of
// contiguous rows.
constexpr std::int64_t kFew = 64;
constexpr std::int64_t kFewDepth = 16;  // with few rows: b is read along its rows

struct Gemm {
  Matrix out, a, b;
  Real alpha, beta;
};

struct Block {
  std::int64_t batch, row, column, rows, columns;
};

template <class T>
T* element(const Matrix& m, std::int64_t batch, std::int64_t row, std::int64_t column) {
  return static_cast<T*>(m.data) + batch * m.batch_stride + row * m.row_stride +
         column * m.column_stride;
}

// out = alpha * sums + beta * out for a tile whose first element is `to`.
template <class T>
void finish_tile(const Gemm& g, T* to, const Real* sums, std::int64_t rows, std::int64_t columns) {
  const std::int64_t step = g.out.column_stride;
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = to + r * g.out.row_stride;
    each_register(0, columns, [&](std::int64_t i, auto lanes) {
      const std::int64_t here = columns - i < kLanes ? columns - i : kLanes;
      Vec value = load(sums + r * kGemmColumns + i) * g.alpha;
      if (g.beta != 0) value += load_strided(lanes, row + i * step, step, here) * g.beta;
      if (step == 1) return lanes.store(row + i, value);
      T scattered[kLanes];
      store(scattered, value);
      for (std::int64_t l = 0; l < here; ++l) row[(i + l) * step] = scattered[l];
    });
  }
}

// Packs panels of Width lines, a few elements of all lines at a time if those lie together.
template <int Width, class T, class Skip>
void pack_panels(Real* to, const Lines<T>& from, std::int64_t lines, std::int64_t depth,
                 const Skip& skip) {
  const std::int64_t step = from.line_stride == 1 ? kReadRows : depth;
  for (std::int64_t k = 0; k < depth; k += step) {
    for (std::int64_t l = 0; l < lines; l += Width) {
      if (skip(l)) continue;
      const T* data = from.data + l * from.line_stride + k * from.depth_stride;
      pack_lines<T>(to + l * depth + k * Width, Width, {data, from.line_stride, from.depth_stride},
                    lines - l < Width ? lines - l : Width, depth - k < step ? depth - k : step);
    }
  }
}

template <int Rows, int Vecs>
void run_tile(const Step& s) {
  if constexpr (Rows == kGemmRows) {
    if (s.a_row == 1 && s.a_depth == kLanes) return gemm_tile<Rows, Vecs, true>(s);
  }
  gemm_tile<Rows, Vecs, false>(s);
}
template <int Vecs, int Rows = kGemmRows>
void tile_of(const Step& s, std::int64_t rows) {
  if (rows >= Rows) return run_tile<Rows, Vecs>(s);
  if constexpr (Rows > 1) tile_of<Vecs, Rows - 1>(s, rows);
}
void tile(const Step& s, std::int64_t rows, std::int64_t columns) {
  if (columns > 2 * kLanes) return tile_of<3>(s, rows);
  if (columns > kLanes) return tile_of<2>(s, rows);
  tile_of<1>(s, rows);
}

// One block of the result, and how its operands are read.
template <class T>
class BlockOfResult {
 public:
  BlockOfResult(const Gemm& g, const Block& at) : g_(g), at_(at) {
    constexpr bool kReadable = std::is_same_v<T, Real>;
    a_in_place_ = kReadable && (at.columns <= kFew || g.a.column_stride == 1);
    b_in_place_ = kReadable && at.rows <= kFew && g.b.column_stride == 1;
    out_in_place_ = kReadable && g.out.column_stride == 1 && g.alpha == 1 && g.beta == 0;
    width_ = (at.columns + kGemmColumns - 1) / kGemmColumns * kGemmColumns;
    most_ = b_in_place_ && at.rows <= kGemmRows ? kFewDepth : kDepth;
    if (g.a.columns < most_) most_ = g.a.columns;
  }

  void run() {
    Real* b = scratch_of<Real>(0, width_ * most_);
    Real* a = scratch_of<Real>(1, a_in_place_ ? 1 : (kPackedRows + kLanes) * most_);
    sums_ = scratch_of<Real>(2, most_ < g_.a.columns ? (at_.rows + kGemmRows) * width_ : 1);
    for (std::int64_t k = 0; k < g_.a.columns; k += most_) {
      const std::int64_t depth = g_.a.columns - k < most_ ? g_.a.columns - k : most_;
      pack_b(b, k, depth);
      for (std::int64_t m = 0; m < at_.rows; m += kPackedRows) {
        const std::int64_t rows = at_.rows - m < kPackedRows ? at_.rows - m : kPackedRows;
        if (!a_in_place_) pack_a(a, m, rows, k, depth);
        for (std::int64_t c = 0; c < at_.columns; c += kGemmColumns) {
          for (std::int64_t r = 0; r < rows; r += kGemmRows) {
            tile_at(a, b, {m, r, c, k, rows - r < kGemmRows ? rows - r : kGemmRows, depth});
          }
        }
      }
    }
  }

 private:
  struct Place {
    std::int64_t m, r, c, k, rows, depth;
  };

  std::int64_t columns_from(std::int64_t c) const {
    return at_.columns - c < kGemmColumns ? at_.columns - c : kGemmColumns;
  }
  bool reads_b(std::int64_t c) const { return b_in_place_ && columns_from(c) % kLanes == 0; }

  void pack_b(Real* to, std::int64_t k, std::int64_t depth) const {
    const Lines<T> lines = {element<const T>(g_.b, at_.batch, k, at_.column), g_.b.column_stride,
                            g_.b.row_stride};
    pack_panels<kGemmColumns>(to, lines, at_.columns, depth,
                              [this](std::int64_t c) { return reads_b(c); });
  }
  void pack_a(Real* to, std::int64_t m, std::int64_t rows, std::int64_t k,
              std::int64_t depth) const {
    const Lines<T> lines = {element<const T>(g_.a, at_.batch, at_.row + m, k), g_.a.row_stride,
                            g_.a.column_stride};
    pack_panels<kLanes>(to, lines, rows, depth, [](std::int64_t) { return false; });
  }

  void tile_at(const Real* a, const Real* b, const Place& p) const {
    const std::int64_t columns = columns_from(p.c);
    const std::int64_t row = at_.row + p.m + p.r, column = at_.column + p.c;
    Step s{a + p.r / kLanes * kLanes * p.depth + p.r % kLanes,
           1,
           kLanes,
           b + p.c * p.depth,
           kGemmColumns,
           p.depth};
    if (a_in_place_) {
      s.a = element<const Real>(g_.a, at_.batch, row, p.k);
      s.a_row = g_.a.row_stride;
      s.a_depth = g_.a.column_stride;
    }
    if (reads_b(p.c)) {
      s.b = element<const Real>(g_.b, at_.batch, p.k, column);
      s.b_depth = g_.b.row_stride;
    }
    T* out = element<T>(g_.out, at_.batch, row, column);
    const bool first = p.k == 0, last = p.k + p.depth == g_.a.columns;
    if (out_in_place_ && columns % kLanes == 0) {
      s.to = reinterpret_cast<Real*>(out);
      s.to_row = s.from_row = g_.out.row_stride;
      s.from = first ? nullptr : s.to;
      return tile(s, p.rows, columns);
    }
    Real* sums = sums_ + (p.m + p.r) * width_ + p.c;
    alignas(64) Real finished[kGemmRows * kGemmColumns];
    s.from = first ? nullptr : sums;
    s.from_row = width_;
    s.to = last ? finished : sums;
    s.to_row = last ? kGemmColumns : width_;
    tile(s, p.rows, columns);
    if (last) finish_tile(g_, out, finished, p.rows, columns);
  }

  const Gemm& g_;
  const Block& at_;
  bool a_in_place_, b_in_place_, out_in_place_;
  std::int64_t width_, most_;  // of the packed b: columns, and the greatest depth
  Real* sums_ = nullptr;
};

std::int64_t pieces(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }
// The size of equal pieces of n, a multiple of `unit`.
std::int64_t piece(std::int64_t n, std::int64_t count, std::int64_t unit) {
  return pieces(pieces(n, count), unit) * unit;
}

template <class T>
void run_blocks(const Gemm& g) {
  std::int64_t rows = piece(g.out.rows, pieces(g.out.rows, kMostRows), kLanes);
  std::int64_t columns = piece(g.out.columns, pieces(g.out.columns, kMostColumns), kGemmColumns);
  const std::int64_t threads = thread_count();
  const auto count = [&] {
    return g.out.batch * pieces(g.out.rows, rows) * pieces(g.out.columns, columns);
  };
  while (count() < threads && rows * columns * g.a.columns > kThreadProducts) {
    if (rows > columns && rows > kLanes) {
      rows = piece(rows, 2, kLanes);
    } else if (columns > kGemmColumns) {
      columns = piece(columns, 2, kGemmColumns);
    } else {
      break;
    }
  }
  const std::int64_t across = pieces(g.out.columns, columns);
  const std::int64_t down = pieces(g.out.rows, rows);
  const std::int64_t grain = rows * columns * g.a.columns >= kThreadProducts
                                 ? 1
                                 : kThreadProducts / (rows * columns * g.a.columns + 1) + 1;
  parallel(count(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Block at = {i / (across * down), i / across % down * rows, i % across * columns, rows,
                  columns};
      if (g.out.rows - at.row < rows) at.rows = g.out.rows - at.row;
      if (g.out.columns - at.column < columns) at.columns = g.out.columns - at.column;
      BlockOfResult<T>(g, at).run();
    }
  });
}

}  // namespace

// Only called with equal dtypes, and with neither an empty operand nor an epilogue.
void run(const Matmul& args) {
  Gemm g = {matrix_of(args.out), matrix_of(args.a), matrix_of(args.b),
            static_cast<Real>(args.alpha), static_cast<Real>(args.beta)};
  if (g.out.batch > 1 && g.b.batch_stride == 0 && g.out.folds() && g.a.folds()) {
    g.out = g.out.folded();
    g.a = g.a.folded();
    g.b = g.b.single();
  }
  const bool narrow =
      g.out.columns < kLanes && g.out.rows > g.out.columns && g.a.column_stride != 1;
  if (narrow || (g.out.column_stride != 1 && g.out.row_stride == 1 && g.out.rows >= kLanes)) {
    g = {g.out.transposed(), g.b.transposed(), g.a.transposed(), g.alpha, g.beta};
  }
  with_stored(args.out.dtype, [&](auto tag) { run_blocks<decltype(tag)>(g); });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
