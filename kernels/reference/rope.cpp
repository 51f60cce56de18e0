#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

struct Turn {
  double cos, sin;
};

std::int64_t position_of(const Rope& args, std::int64_t b, std::int64_t s) {
  if (!args.positions.data) return args.first_position + s;
  const auto& strides = args.positions.strides;
  return args.first_position +
         as<std::int64_t>(args.positions.data)[b * strides[0] + s * strides[1]];
}

Turn turn_of(const Rope& args, std::int64_t position, std::int64_t i) {
  if (args.table == nullptr) {
    const double power = -2.0 * static_cast<double>(i) / static_cast<double>(args.x.shape[3]);
    const double angle = static_cast<double>(position) * std::pow(args.theta, power);
    return {std::cos(angle), std::sin(angle)};
  }
  const float angle = static_cast<float>(position) * args.table->frequencies[i];
  const float scaling = args.table->scaling;
  return {static_cast<float>(std::cos(static_cast<double>(angle))) * scaling,
          static_cast<float>(std::sin(static_cast<double>(angle))) * scaling};
}

}  // namespace

void run(const Rope& args) {
  const auto& shape = args.x.shape;
  const std::int64_t half = shape[3] / 2;
  CS_REQUIRE(shape[3] % 2 == 0, "rotary_embedding: the last dimension must be even, got ",
             shape[3]);
  with_floating(args.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t b = 0; b < shape[0]; ++b) {
      for (std::int64_t s = 0; s < shape[1]; ++s) {
        for (std::int64_t i = 0; i < half; ++i) {
          const Turn turn = turn_of(args, position_of(args, b, s), i);
          const double c = turn.cos;
          const double sn = args.inverse ? -turn.sin : turn.sin;
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
