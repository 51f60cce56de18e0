#pragma once
// The register-blocked GEMM that attention is built on: C[m, n] (+)= A[m, k] B[k, n] in f32, where
// B and C are padded to whole panels of kPanel columns. Only included by the sources of this
// directory.
#include "kernels/cpu/simd/pack.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

constexpr int kPanel = 2 * kLanes;               // columns per micro-tile
constexpr int kTileRows = kLanes == 16 ? 8 : 4;  // rows per micro-tile

COSHARD_INLINE std::int64_t padded(std::int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

// A has row and column strides, so that transposing A is free; B and C have row strides.
struct Product {
  const Real* a;
  std::int64_t a_row, a_column;
  const Real* b;
  std::int64_t b_row;
  Real* c;
  std::int64_t c_row;
  bool add;  // accumulate into C
};

template <int Rows>
COSHARD_INLINE void micro_tile(const Product& p, const Real* a, const Real* b, Real* c,
                               std::int64_t depth) {
  Vec left[Rows];
  Vec right[Rows];
  for (int r = 0; r < Rows; ++r) {
    left[r] = p.add ? load(c + r * p.c_row) : Vec{};
    right[r] = p.add ? load(c + r * p.c_row + kLanes) : Vec{};
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vec b0 = load(b);
    const Vec b1 = load(b + kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vec factor = all(a[r * p.a_row]);
      left[r] += factor * b0;
      right[r] += factor * b1;
    }
    a += p.a_column;
    b += p.b_row;
  }
  for (int r = 0; r < Rows; ++r) {
    store(c + r * p.c_row, left[r]);
    store(c + r * p.c_row + kLanes, right[r]);
  }
}

template <int Rows>
COSHARD_INLINE void last_rows(const Product& p, std::int64_t rows, const Real* a, const Real* b,
                              Real* c, std::int64_t depth) {
  if constexpr (Rows > 0) {
    if (rows == Rows) return micro_tile<Rows>(p, a, b, c, depth);
    last_rows<Rows - 1>(p, rows, a, b, c, depth);
  }
}

// `columns` is rounded up to whole panels.
inline void multiply(const Product& p, std::int64_t rows, std::int64_t columns,
                     std::int64_t depth) {
  for (std::int64_t n = 0; n < columns; n += kPanel) {
    std::int64_t m = 0;
    for (; m + kTileRows <= rows; m += kTileRows) {
      micro_tile<kTileRows>(p, p.a + m * p.a_row, p.b + n, p.c + m * p.c_row + n, depth);
    }
    last_rows<kTileRows - 1>(p, rows - m, p.a + m * p.a_row, p.b + n, p.c + m * p.c_row + n, depth);
  }
}

// Contiguous rows of a stored matrix.
struct StoredRows {
  DType dtype;
  void* data;
  std::int64_t stride;
};

// to[r, 0..padded(columns)) = factor * from[r * stride + ..], the padding 0.
[[gnu::noinline]] inline void pack_rows(Real* to, const StoredRows& from, std::int64_t rows,
                                        std::int64_t columns, Real factor) {
  const std::int64_t width = padded(columns);
  with_stored(from.dtype, [&](auto tag) {
    const auto* data = as<decltype(tag)>(from.data);
    for (std::int64_t r = 0; r < rows; ++r) {
      Real* row = to + r * width;
      std::int64_t c = 0;
      each_register(
          0, columns, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            store(row + i, lanes.load(data + r * from.stride + i) * factor);
            c = i + kLanes;
          });
      for (; c < width; c += kLanes) store(row + c, Vec{});
    }
  });
}

// to[c * width + r] = from[r * stride + c]: the transpose, its rows padded to `width` with 0.
[[gnu::noinline]] inline void pack_transposed(Real* to, std::int64_t width, const StoredRows& from,
                                              std::int64_t rows, std::int64_t columns) {
  with_stored(from.dtype, [&](auto tag) {
    using T = decltype(tag);
    pack_lines<T>(to, width, {as<T>(from.data), from.stride, 1}, rows, columns);
  });
  const std::int64_t end = (rows + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = end; r < width; r += kLanes) store(to + c * width + r, Vec{});
  }
}

[[gnu::noinline]] inline void unpack_rows(const StoredRows& to, const Real* from, std::int64_t rows,
                                          std::int64_t columns, Real factor) {
  const std::int64_t width = padded(columns);
  with_stored(to.dtype, [&](auto tag) {
    auto* data = as<decltype(tag)>(to.data);
    for (std::int64_t r = 0; r < rows; ++r) {
      each_register(
          0, columns, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
            lanes.store(data + r * to.stride + i, lanes.load(from + r * width + i) * factor);
          });
    }
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
