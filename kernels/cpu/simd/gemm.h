#pragma once
// The register tile of matmul. Only included by the sources of this directory.
#include "kernels/cpu/simd/pack.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

constexpr int kGemmVecs = 3;                      // registers per row of a tile
constexpr int kGemmColumns = kGemmVecs * kLanes;  // columns of a panel of b
constexpr int kGemmRows =                         // rows of a tile: its sums fill the registers
    kBytes == 64 ? 8
    : kLanes < 4 ? kLanes
                 : 4;

// Its arguments are read before it multiplies: clang fuses a product and a sum only where no check
// of a sanitizer lies between them.
COSHARD_INLINE Vec multiply_add(Vec a, Vec b, Vec c) { return a * b + c; }

// A panel of a times a panel of b. The sums continue `from`, or begin at 0 if that is null, and are
// stored at `to`; so an element is one sum in ascending order, in whatever pieces it is computed.
struct Step {
  const Real* a;
  std::int64_t a_row, a_depth;
  const Real* b;
  std::int64_t b_depth;
  std::int64_t depth;
  const Real* from;
  Real* to;
  std::int64_t from_row, to_row;
};

template <int Rows, int Vecs, bool PackedA>
COSHARD_INLINE void gemm_tile(const Step& s) {
  Vec sums[Rows][Vecs];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      sums[r][v] = s.from == nullptr ? Vec{} : load(s.from + r * s.from_row + v * kLanes);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {  // the cells of the tile below
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) {
      __builtin_prefetch(s.to + (Rows + r) * s.to_row + v * kLanes, 1);
    }
  }
  const Real* a = s.a;
  const Real* b = s.b;
  const std::int64_t a_row = PackedA ? 1 : s.a_row, a_depth = PackedA ? kLanes : s.a_depth;
  for (std::int64_t k = 0; k < s.depth; ++k) {
    Vec right[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) right[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Vec factor = all(a[r * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) sums[r][v] = multiply_add(factor, right[v], sums[r][v]);
    }
    a += a_depth;
    b += s.b_depth;
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) store(s.to + r * s.to_row + v * kLanes, sums[r][v]);
  }
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
