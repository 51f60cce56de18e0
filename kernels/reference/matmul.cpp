#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {

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
            cell = rounded<T>(value);
          }
        }
      }
    }
  });
}

}  // namespace coshard::kernels::reference
