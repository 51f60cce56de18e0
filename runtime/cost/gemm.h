#pragma once
// Predicts how long a GEMM takes, for overlapped schedules. Integer arithmetic on what all ranks
// know.
#include <array>
#include <cstdint>

#include <coshard/runtime/dtype.h>

namespace coshard {

// Times of GEMMs [rows, k] @ [k, n] measured on a grid, with trilinear interpolation: exact where a
// time is a constant plus a multiple of rows * n * k, as on a CPU, close where caches distort it.
// On a GPU a point is the time of one wave of tiles, and a GEMM takes as many as its tiles need.
struct GemmTable {
  static constexpr std::array<std::int64_t, 5> kRows{1, 8, 32, 128, 512};
  static constexpr std::array<std::int64_t, 3> kSides{128, 512, 2048};
  static constexpr std::size_t kPoints = kRows.size() * kSides.size() * kSides.size();
  struct Point {
    std::int64_t rows, n, k;
  };

  DType dtype = DType::F32;
  std::int64_t scale = 1;            // of the grid: 1 on a CPU
  std::int64_t multiprocessors = 0;  // 0: a CPU
  std::array<std::int64_t, kPoints> ns{};

  Point point(std::size_t i) const;
  // In ns, at least 1. Beyond the last point times grow in proportion; below the first they are
  // constant.
  std::int64_t at(std::int64_t rows, std::int64_t n, std::int64_t k) const;
  // Fills points that are 0 from smaller ones, caps each at the time of as many smaller ones (its
  // measurement was disturbed), and divides measured times by their number of waves.
  void complete();
  friend bool operator==(const GemmTable&, const GemmTable&) = default;

 private:
  std::int64_t waves(std::int64_t rows, std::int64_t n) const;
};

// Times of one rank's GEMMs of one dtype: as measured, else from a constant rate. A view of a table.
struct GemmModel {
  const GemmTable* table = nullptr;
  int threads = 1;  // of a rank on a CPU; 0: a GPU
  std::int64_t ns(std::int64_t rows, std::int64_t n, std::int64_t k) const;
};

}  // namespace coshard
