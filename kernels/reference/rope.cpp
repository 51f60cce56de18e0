#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {

void run(const Rope& args) {
  const auto& shape = args.x.shape;
  const std::int64_t half = shape[3] / 2;
  CS_REQUIRE(shape[3] % 2 == 0, "rotary_embedding: the last dimension must be even, got ",
             shape[3]);
  with_floating(args.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t s = 0; s < shape[1]; ++s) {
      for (std::int64_t i = 0; i < half; ++i) {
        const auto position = static_cast<double>(args.first_position + s);
        const double power = -2.0 * static_cast<double>(i) / static_cast<double>(shape[3]);
        const double angle = position * std::pow(args.theta, power);
        const double c = std::cos(angle);
        const double sn = args.inverse ? -std::sin(angle) : std::sin(angle);
        for (std::int64_t b = 0; b < shape[0]; ++b) {
          for (std::int64_t h = 0; h < shape[2]; ++h) {
            const auto low = static_cast<double>(at<T>(args.x, b, s, h, i));
            const auto high = static_cast<double>(at<T>(args.x, b, s, h, i + half));
            at<T>(args.y, b, s, h, i) = rounded<T>(low * c - high * sn);
            at<T>(args.y, b, s, h, i + half) = rounded<T>(high * c + low * sn);
          }
        }
      }
    }
  });
}

}  // namespace coshard::kernels::reference
