#include <cmath>
#include <limits>

#include "kernels/reference/lines.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels::reference {

void run(const Softmax& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_line(args, [&](std::int64_t first, std::int64_t) {
      const T* x = as<T>(args.x) + first;
      T* y = as<T>(args.y) + first;
      double high = -std::numeric_limits<double>::infinity();
      for (std::int64_t e = 0; e < args.extent; ++e) {
        high = std::max(high, get(x, e * args.inner));
      }
      double sum = 0;
      for (std::int64_t e = 0; e < args.extent; ++e) sum += std::exp(get(x, e * args.inner) - high);
      for (std::int64_t e = 0; e < args.extent; ++e) {
        const double shifted = get(x, e * args.inner) - high;
        y[e * args.inner] =
            rounded<T>(args.log ? shifted - std::log(sum) : std::exp(shifted) / sum);
      }
    });
  });
}

void run(const SoftmaxGrad& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_line(args, [&](std::int64_t first, std::int64_t) {
      const T* y = as<T>(args.y) + first;
      const T* dy = as<T>(args.dy) + first;
      T* dx = as<T>(args.dx) + first;
      double sum = 0;
      for (std::int64_t e = 0; e < args.extent; ++e) {
        const std::int64_t at = e * args.inner;
        sum += args.log ? get(dy, at) : get(dy, at) * get(y, at);
      }
      for (std::int64_t e = 0; e < args.extent; ++e) {
        const std::int64_t at = e * args.inner;
        dx[at] = rounded<T>(args.log ? get(dy, at) - std::exp(get(y, at)) * sum
                                     : get(y, at) * (get(dy, at) - sum));
      }
    });
  });
}

}  // namespace coshard::kernels::reference
