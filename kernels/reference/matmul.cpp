#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

constexpr double kMatmulGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kMatmulGeluCubic = 0.044715;

double gelu_of(double y) {
  return 0.5 * y * (1 + std::tanh(kMatmulGeluScale * (y + kMatmulGeluCubic * y * y * y)));
}

double gelu_slope(double y) {
  const double t = std::tanh(kMatmulGeluScale * (y + kMatmulGeluCubic * y * y * y));
  return 0.5 * (1 + t) +
         0.5 * y * (1 - t * t) * kMatmulGeluScale * (1 + 3 * kMatmulGeluCubic * y * y);
}

// Applies bias and epilogue to one result: `at` is its index in aux, `column` its index in the
// bias.
template <class T>
T finished(const Matmul& args, double y, std::int64_t at, std::int64_t column) {
  if (args.bias != nullptr) y += get(as<T>(args.bias), column);
  T* aux = as<T>(args.aux);
  if (args.epilogue == Epilogue::Gelu) {
    aux[at] = rounded<T>(y);
    return rounded<T>(gelu_of(y));
  }
  if (args.epilogue == Epilogue::GeluGrad) return rounded<T>(y * gelu_slope(get(aux, at)));
  return rounded<T>(y);
}

template <class T>
void sum_rows(const View& a, T* sums) {
  for (std::int64_t i = 0; i < a.shape[0]; ++i) {
    double sum = 0;
    for (std::int64_t p = 0; p < a.shape[1]; ++p)
      sum += get(as<T>(static_cast<const void*>(a.data)), i * a.strides[0] + p * a.strides[1]);
    sums[i] = rounded<T>(sum);
  }
}

}  // namespace

void run(const Matmul& args) {
  const int lead = args.out.ndim - 2;
  const std::int64_t batch = lead == 1 ? args.out.shape[0] : 1;
  const std::int64_t m = args.out.shape[lead];
  const std::int64_t n = args.out.shape[lead + 1];
  const std::int64_t k = args.a.shape[lead + 1];
  const auto stride = [&](const View& v, int d) { return d < 0 ? 0 : v.strides[d]; };
  with_any(args.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Sum = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
    for (std::int64_t g = 0; g < batch; ++g) {
      T* out = as<T>(args.out.data) + g * stride(args.out, lead - 1);
      const T* a = as<T>(static_cast<const void*>(args.a.data)) + g * stride(args.a, lead - 1);
      const T* b = as<T>(static_cast<const void*>(args.b.data)) + g * stride(args.b, lead - 1);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          Sum sum = 0;
          for (std::int64_t p = 0; p < k; ++p) {
            const T left = a[i * stride(args.a, lead) + p * stride(args.a, lead + 1)];
            const T right = b[p * stride(args.b, lead) + j * stride(args.b, lead + 1)];
            sum += static_cast<Sum>(left) * static_cast<Sum>(right);
          }
          T& cell = out[i * stride(args.out, lead) + j * stride(args.out, lead + 1)];
          const Sum old = args.beta == 0 ? 0 : static_cast<Sum>(args.beta) * static_cast<Sum>(cell);
          const Sum value = static_cast<Sum>(args.alpha) * sum + old;
          if constexpr (std::is_integral_v<T>) {
            cell = static_cast<T>(value);
          } else {
            cell = finished<T>(args, value, (g * m + i) * n + j, j);
          }
        }
      }
    }
    if constexpr (!std::is_integral_v<T>)
      if (args.epilogue == Epilogue::BiasGrad) sum_rows<T>(args.a, as<T>(args.aux));
  });
}

}  // namespace coshard::kernels::reference
