#include "runtime/cost/gemm.h"

#include <algorithm>

namespace coshard {
namespace {

constexpr std::int64_t kTileRows = 128, kTileColumns = 256;  // of cuBLAS on recent GPUs
constexpr std::int64_t kUnmeasuredMultiprocessors = 132;
// flop/ns that large GEMMs reach on a common core, and on a common GPU.
constexpr std::int64_t kCoreRate = 60, kGpuRate = 400'000;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t waves_of(std::int64_t rows, std::int64_t n, std::int64_t multiprocessors) {
  return ceil_div(ceil_div(rows, kTileRows) * ceil_div(n, kTileColumns), multiprocessors);
}

// The grid interval that contains x, and x's position in it.
struct Place {
  std::size_t first;
  std::int64_t low, high, x;
  std::int64_t between(std::int64_t a, std::int64_t b) const {
    return a + (b - a) * (x - low) / (high - low);
  }
};

template <std::size_t N>
Place place(const std::array<std::int64_t, N>& grid, std::int64_t scale, std::int64_t x) {
  std::size_t i = 0;
  while (i + 2 < N && grid[i + 1] * scale < x) ++i;
  const std::int64_t low = grid[i] * scale, high = grid[i + 1] * scale;
  return {i, low, high, std::clamp(x, low, high)};
}

// `ns`, scaled in proportion to x where x exceeds the last point.
std::int64_t beyond(std::int64_t ns, std::int64_t x, std::int64_t last) {
  return x <= last ? ns : ns / last * x + ns % last * x / last;
}

}  // namespace

GemmTable::Point GemmTable::point(std::size_t i) const {
  const std::size_t sides = kSides.size();
  return {kRows[i / (sides * sides)] * scale, kSides[i / sides % sides] * scale,
          kSides[i % sides] * scale};
}

std::int64_t GemmTable::waves(std::int64_t rows, std::int64_t n) const {
  return multiprocessors == 0 ? 1 : waves_of(rows, n, multiprocessors);
}

std::int64_t GemmTable::at(std::int64_t rows, std::int64_t n, std::int64_t k) const {
  const Place r = place(kRows, scale, rows), c = place(kSides, scale, n),
              d = place(kSides, scale, k);
  const auto line = [&](std::size_t i, std::size_t j) {
    const std::size_t at = (i * kSides.size() + j) * kSides.size() + d.first;
    return d.between(ns[at], ns[at + 1]);
  };
  const auto plane = [&](std::size_t i) {
    return c.between(line(i, c.first), line(i, c.first + 1));
  };
  std::int64_t time = r.between(plane(r.first), plane(r.first + 1));
  time = beyond(time, k, kSides.back() * scale);
  // More columns than the grid has: as the last two points go on. Of few rows, times are those of
  // reading the weight, which grow with n within a wave.
  const auto wider = [&] {
    const auto at_side = [&](std::size_t j, std::int64_t columns) {
      const std::int64_t wave = r.between(line(r.first, j), line(r.first + 1, j));
      return beyond(wave, k, kSides.back() * scale) * waves(rows, columns);
    };
    const std::int64_t last = at_side(c.first + 1, c.high), before = at_side(c.first, c.low);
    return last + std::max<std::int64_t>(0, last - before) * (n - c.high) / (c.high - c.low);
  };
  if (multiprocessors > 0)
    time = std::max(time * waves(rows, n), n > c.high ? wider() : 0);
  else
    time = beyond(beyond(time, rows, kRows.back() * scale), n, kSides.back() * scale);
  return std::max<std::int64_t>(time, 1);
}

void GemmTable::complete() {
  constexpr std::size_t kSteps[] = {1, kSides.size(), kSides.size() * kSides.size()};
  for (std::size_t i = 0; i < kPoints; ++i) {
    const Point here = point(i);
    for (const std::size_t step : kSteps) {  // towards smaller k, n, rows
      if (i / step % (step == kSteps[2] ? kRows.size() : kSides.size()) == 0) continue;
      const Point less = point(i - step);
      const std::int64_t times = here.rows * here.n * here.k / (less.rows * less.n * less.k);
      if (ns[i] == 0 || ns[i] > ns[i - step] * times) ns[i] = ns[i - step] * times;
    }
    ns[i] = std::max<std::int64_t>(ns[i], 1);
  }
  for (std::size_t i = 0; i < kPoints; ++i)
    ns[i] = std::max<std::int64_t>(ns[i] / waves(point(i).rows, point(i).n), 1);
}

std::int64_t GemmModel::ns(std::int64_t rows, std::int64_t n, std::int64_t k) const {
  if (rows <= 0 || n <= 0 || k <= 0) return 0;
  if (table != nullptr) return table->at(rows, n, k);
  if (threads > 0) return 2 * rows * n * k / (kCoreRate * threads);
  const std::int64_t wave_flops = kUnmeasuredMultiprocessors * kTileRows * kTileColumns * 2 * k;
  return waves_of(rows, n, kUnmeasuredMultiprocessors) * (wave_flops / kGpuRate);
}

}  // namespace coshard
