#include "tests/support/fake_cuda/fake_product.h"

#include <cmath>
#include <type_traits>

#include <coshard/runtime/dtype.h>

namespace coshard::testing {
namespace {

template <class T>
double read(const void* data, std::int64_t at) {
  return static_cast<double>(static_cast<const T*>(data)[at]);
}
template <class T>
void write(void* data, std::int64_t at, double value) {
  static_cast<T*>(data)[at] = static_cast<T>(value);
}

constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
double inner_of(double x) { return std::tanh(kScale * (x + 0.044715 * x * x * x)); }
double gelu(double x) { return 0.5 * x * (1 + inner_of(x)); }
double slope(double x) {
  const double t = inner_of(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kScale * (1 + 3 * 0.044715 * x * x);
}

// Applies the epilogue to y, of row i and column j of batch g.
template <class T>
double finished(const FakeProduct& call, double y, std::int64_t g, std::int64_t i, std::int64_t j) {
  if (call.has(CUBLASLT_EPILOGUE_BIAS)) y += read<T>(call.desc.bias, i);
  const std::int64_t at = g * call.desc.aux_stride + j * call.desc.aux_ld + i;
  if (call.has(CUBLASLT_EPILOGUE_DGELU)) return y * slope(read<T>(call.desc.aux, at));
  if (!call.has(CUBLASLT_EPILOGUE_GELU)) return y;
  if (call.has(CUBLASLT_EPILOGUE_GELU_AUX)) write<T>(call.desc.aux, at, y);
  return gelu(y);
}

// Sums the rows of op(a), or the columns of op(b).
template <class T>
void sum_operand(const FakeProduct& call) {
  const bool left = call.has(CUBLASLT_EPILOGUE_BGRADA);
  if (!left && !call.has(CUBLASLT_EPILOGUE_BGRADB)) return;
  const FakeLayout& m = left ? call.a : call.b;
  const bool columns =
      left ? call.desc.transpose_a != CUBLAS_OP_N : call.desc.transpose_b == CUBLAS_OP_N;
  for (std::int64_t i = 0; i < (left ? call.d.rows : call.d.columns); ++i) {
    double sum = 0;
    for (std::int64_t p = 0; p < call.depth(); ++p)
      sum += read<T>(left ? call.left : call.right, columns ? i * m.ld + p : p * m.ld + i);
    write<T>(call.desc.bias, i, sum);
  }
}

template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
SumOf<T> sliced_dot(const FakeProduct& call, const T* a, std::int64_t a_step, const T* b,
                    std::int64_t b_step) {
  SumOf<T> all = 0;
  for (int slice = 0; slice < call.slices; ++slice) {
    SumOf<T> sum = 0;
    for (std::int64_t p = slice; p < call.depth(); p += call.slices)
      sum += static_cast<SumOf<T>>(a[p * a_step]) * static_cast<SumOf<T>>(b[p * b_step]);
    all += sum;
    if (call.rounds) all = static_cast<SumOf<T>>(static_cast<T>(all));
  }
  return all;
}

template <class T>
void compute_typed(const FakeProduct& call) {
  const bool ta = call.desc.transpose_a != CUBLAS_OP_N, tb = call.desc.transpose_b != CUBLAS_OP_N;
  const std::int64_t a_row = ta ? call.a.ld : 1, a_step = ta ? 1 : call.a.ld;
  const std::int64_t b_column = tb ? 1 : call.b.ld, b_step = tb ? call.b.ld : 1;
  for (std::int64_t g = 0; g < call.d.batch; ++g) {
    for (std::int64_t j = 0; j < call.d.columns; ++j) {
      for (std::int64_t i = 0; i < call.d.rows; ++i) {
        const auto dot = sliced_dot<T>(
            call, static_cast<const T*>(call.left) + g * call.a.stride + i * a_row, a_step,
            static_cast<const T*>(call.right) + g * call.b.stride + j * b_column, b_step);
        const std::int64_t at = g * call.d.stride + j * call.d.ld + i;
        double sum = static_cast<double>(dot) * call.alpha;
        if (call.beta != 0) sum += call.beta * read<T>(call.old, at);
        write<T>(call.result, at, finished<T>(call, sum, g, i, j));
      }
    }
  }
  sum_operand<T>(call);
}

}  // namespace

void compute(const FakeProduct& call) {
  switch (call.d.type) {
    case CUDA_R_64F: return compute_typed<double>(call);
    case CUDA_R_16BF: return compute_typed<BFloat16>(call);
    case CUDA_R_16F: return compute_typed<Float16>(call);
    default: return compute_typed<float>(call);
  }
}

}  // namespace coshard::testing
