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
  with_floating(args.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t g = 0; g < batch; ++g) {
      T* out = as<T>(args.out.data) + g * stride(args.out, lead - 1);
      const T* a = as<T>(static_cast<const void*>(args.a.data)) + g * stride(args.a, lead - 1);
      const T* b = as<T>(static_cast<const void*>(args.b.data)) + g * stride(args.b, lead - 1);
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (std::int64_t p = 0; p < k; ++p) {
            sum += get(a, i * stride(args.a, lead) + p * stride(args.a, lead + 1)) *
                   get(b, p * stride(args.b, lead) + j * stride(args.b, lead + 1));
          }
          T& cell = out[i * stride(args.out, lead) + j * stride(args.out, lead + 1)];
          const double old = args.beta == 0 ? 0 : args.beta * static_cast<double>(cell);
          cell = rounded<T>(args.alpha * sum + old);
        }
      }
    }
  });
}

}  // namespace coshard::kernels::reference
