#pragma once
// How long a product of matrices takes: the one place where overlapped schedules ask. Integer
// arithmetic on what all ranks know.
#include <array>
#include <cstdint>

#include <coshard/dtensor/device_mesh.h>
#include <coshard/runtime/dtype.h>

namespace coshard {

// Times of products [rows, k] @ [k, n] measured on a grid, all three linear between its points: exact
// where a time is a constant and a share of rows * n * k, as on a CPU, close where caches bend it.
// On a GPU the points are times of one wave of tiles, and a product takes as many as its tiles need.
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
  // At least 1. Beyond the grid a product takes its share of the last point's time; a smaller one
  // as long as the first.
  std::int64_t at(std::int64_t rows, std::int64_t n, std::int64_t k) const;
  // Fills points that are 0 from smaller ones, lets none take longer than as many smaller ones (it
  // was disturbed), and makes measured times of whole products those of their waves.
  void complete();
  friend bool operator==(const GemmTable&, const GemmTable&) = default;

 private:
  std::int64_t waves(std::int64_t rows, std::int64_t n) const;
};

// Times of one rank's products of one dtype: as measured, else by a constant rate. A view of a
// mesh's calibration.
struct GemmModel {
  const GemmTable* table = nullptr;
  int threads = 1;  // of a rank on a CPU; 0: a GPU
  std::int64_t ns(std::int64_t rows, std::int64_t n, std::int64_t k) const;
};
GemmModel gemm_model(const DeviceMesh& mesh, DType dtype);
inline std::int64_t gemm_ns(const DeviceMesh& mesh, std::int64_t rows, std::int64_t n,
                            std::int64_t k, DType dtype) {
  return gemm_model(mesh, dtype).ns(rows, n, k);
}

}  // namespace coshard
