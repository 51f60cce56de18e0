#pragma once
// Typed arrays of random numbers and comparisons for the kernel tests. Values are read and written
// as doubles.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "kernels/args.h"

namespace coshard::kernels::testing {

inline const std::vector<DType> kFloating = {DType::F32, DType::F64, DType::BF16, DType::F16};
inline const std::vector<std::int64_t> kCounts = {0, 1, 3, 15, 16, 17, 63, 100, 257, 1030};

class Data {
 public:
  Data(DType dtype, std::int64_t count)
      : dtype_(dtype), count_(count), bytes_(count * size_of(dtype) + 1) {}

  static Data normal(DType dtype, std::int64_t count, unsigned seed, double scale = 1) {
    Data data(dtype, count);
    std::mt19937 engine(seed);
    std::normal_distribution<double> draw(0, scale);
    for (std::int64_t i = 0; i < count; ++i) data.set(i, draw(engine));
    return data;
  }
  // Integers in [low, high].
  static Data integers(DType dtype, std::int64_t count, unsigned seed, int low, int high) {
    Data data(dtype, count);
    std::mt19937 engine(seed);
    std::uniform_int_distribution<int> draw(low, high);
    for (std::int64_t i = 0; i < count; ++i) data.set(i, draw(engine));
    return data;
  }
  static Data filled(DType dtype, std::int64_t count, double value) {
    Data data(dtype, count);
    for (std::int64_t i = 0; i < count; ++i) data.set(i, value);
    return data;
  }

  DType dtype() const { return dtype_; }
  std::int64_t count() const { return count_; }
  void* ptr() { return bytes_.data(); }
  const void* ptr() const { return bytes_.data(); }
  bool operator==(const Data& other) const { return bytes_ == other.bytes_; }

  double get(std::int64_t i) const {
    switch (dtype_) {
      case DType::F32: return at<float>(i);
      case DType::F64: return at<double>(i);
      case DType::BF16: return static_cast<float>(at<BFloat16>(i));
      case DType::F16: return static_cast<float>(at<Float16>(i));
      case DType::F8E4M3: return static_cast<float>(at<Float8E4M3>(i));
      case DType::F8E5M2: return static_cast<float>(at<Float8E5M2>(i));
      case DType::I64: return static_cast<double>(at<std::int64_t>(i));
      case DType::I32: return at<std::int32_t>(i);
      case DType::Bool: return at<bool>(i) ? 1 : 0;
    }
    return 0;
  }
  void set(std::int64_t i, double value) {
    switch (dtype_) {
      case DType::F32: at<float>(i) = static_cast<float>(value); break;
      case DType::F64: at<double>(i) = value; break;
      case DType::BF16: at<BFloat16>(i) = BFloat16(static_cast<float>(value)); break;
      case DType::F16: at<Float16>(i) = Float16(static_cast<float>(value)); break;
      case DType::F8E4M3: at<Float8E4M3>(i) = Float8E4M3(static_cast<float>(value)); break;
      case DType::F8E5M2: at<Float8E5M2>(i) = Float8E5M2(static_cast<float>(value)); break;
      case DType::I64: at<std::int64_t>(i) = static_cast<std::int64_t>(value); break;
      case DType::I32: at<std::int32_t>(i) = static_cast<std::int32_t>(value); break;
      case DType::Bool: at<bool>(i) = value != 0; break;
    }
  }

  // A row-major view of `shape`; with `order`, dimension order[0] is outermost in memory.
  View view(std::vector<std::int64_t> shape, std::vector<int> order = {}) {
    View v;
    v.data = ptr();
    v.dtype = dtype_;
    v.ndim = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (int d = v.ndim - 1; d >= 0; --d) {
      const int dim = order.empty() ? d : order[d];
      v.shape[dim] = shape[dim];
      v.strides[dim] = stride;
      stride *= shape[dim];
    }
    return v;
  }

 private:
  template <class T>
  T& at(std::int64_t i) {
    return reinterpret_cast<T*>(bytes_.data())[i];
  }
  template <class T>
  const T& at(std::int64_t i) const {
    return reinterpret_cast<const T*>(bytes_.data())[i];
  }

  DType dtype_;
  std::int64_t count_;
  std::vector<std::byte> bytes_;
};

inline std::vector<UnaryOp> every_unary_op() {
#define X(Name) UnaryOp::Name,
  return {COSHARD_UNARY_FUNCTIONS(X)};
#undef X
}

// What the statistics of a floating dtype are kept in.
inline DType statistic(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::F64: return 1e-12;
    case DType::BF16: return 1.0 / 100;
    case DType::F16: return 1.0 / 800;
    default: return 2e-5;
  }
}

// |got - want| <= t * (1 + |want|), NaN and infinities equal; reports the first difference.
inline void expect_close(const Data& got, const Data& want, double t, const std::string& what) {
  ASSERT_EQ(got.count(), want.count());
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const double g = got.get(i);
    const double w = want.get(i);
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    ASSERT_LE(std::abs(g - w), std::isinf(w) ? 0 : t * (1 + std::abs(w)))
        << what << " " << got.dtype() << " element " << i << " of " << got.count() << ": " << g
        << " for " << w;
  }
}
inline void expect_close(const Data& got, const Data& want, const std::string& what) {
  expect_close(got, want, tolerance(got.dtype()), what);
}

}  // namespace coshard::kernels::testing
