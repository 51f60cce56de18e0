#pragma once
// Packing of lines into Reals, transposed in registers. Only included by the sources of this
// directory.
#include <utility>

#include "kernels/cpu/simd/strided.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

template <std::size_t... I>
COSHARD_INLINE void interleave(Vec a, Vec b, Vec& low, Vec& high, std::index_sequence<I...>) {
  low = __builtin_shufflevector(a, b, (I / 2 + I % 2 * kLanes)...);
  high = __builtin_shufflevector(a, b, (I / 2 + I % 2 * kLanes + kLanes / 2)...);
}

// Exchanges rows and lanes: each step rotates the bits of an element's place, row before lane, by
// one.
COSHARD_INLINE void transpose(Vec (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    Vec next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      interleave(rows[i], rows[i + kLanes / 2], next[2 * i], next[2 * i + 1],
                 std::make_index_sequence<kLanes>());
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

// Lines of equal length, for packing: rows of a or columns of b.
template <class T>
struct Lines {
  const T* data;
  std::int64_t line_stride, depth_stride;
};

// to[k * to_row + l] = element k of line l; lines that are missing in the last register are 0.
template <class T>
void pack_lines(Real* to, std::int64_t to_row, const Lines<T>& from, std::int64_t lines,
                std::int64_t depth) {
  if (from.line_stride == 1) {
    for (std::int64_t k = 0; k < depth; ++k) {
      each_register(0, lines, [&](std::int64_t l, auto lanes) {
        store(to + k * to_row + l, lanes.load(from.data + k * from.depth_stride + l));
      });
    }
    return;
  }
  for (std::int64_t first = 0; first < lines; first += kLanes) {
    const std::int64_t here = lines - first < kLanes ? lines - first : kLanes;
    const T* data = from.data + first * from.line_stride;
    each_register(0, depth, [&](std::int64_t k, auto lanes) {
      const std::int64_t count = depth - k < kLanes ? depth - k : kLanes;
      Vec block[kLanes] = {};
      for (std::int64_t l = 0; l < here; ++l) {
        const T* line = data + l * from.line_stride + k * from.depth_stride;
        block[l] = load_strided(lanes, line, from.depth_stride, count);
      }
      transpose(block);
      for (std::int64_t i = 0; i < count; ++i) store(to + (k + i) * to_row + first, block[i]);
    });
  }
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
