#include <cmath>
#include <numbers>

#include "kernels/philox.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/typed.h"

namespace coshard::kernels::reference {
namespace {

constexpr double kUnit = 1.0 / (1 << 24);

double uniform(std::uint64_t seed, std::uint64_t stream, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  return (philox_block(seed, stream, i / 4)[i % 4] >> 8) * kUnit;
}

double normal(std::uint64_t seed, std::uint64_t stream, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  const Words words = philox_block(seed, stream, i / 4);
  const std::size_t even = (i % 4) & ~std::size_t{1};
  const double u1 = ((words[even] >> 8) + 1) * kUnit;
  const double angle = 2 * std::numbers::pi * (words[even + 1] >> 8) * kUnit;
  return std::sqrt(-2 * std::log(u1)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Calls f(position in local memory, index in the global tensor) for every element of the region.
template <class F>
void each_element(const RandomRegion& region, F&& f) {
  View global;
  global.ndim = region.ndim;
  global.shape = region.shape;
  global.strides = region.global_strides;
  std::int64_t base = 0;
  for (int d = 0; d < region.ndim; ++d) base += region.offset[d] * region.global_strides[d];
  std::int64_t local = 0;
  walk<1>(global, {&global}, [&](const auto& at) { f(local++, base + at[0]); });
}

}  // namespace

void run(const Random& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = as<T>(args.out);
    each_element(args.region, [&](std::int64_t i, std::int64_t index) {
      const double draw = args.kind == RandomKind::Uniform ? uniform(args.seed, args.stream, index)
                                                           : normal(args.seed, args.stream, index);
      out[i] = rounded<T>(draw * args.scale + args.shift);
    });
  });
}

void run(const Dropout& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    T* y = as<T>(args.y);
    each_element(args.region, [&](std::int64_t i, std::int64_t index) {
      const bool keep = uniform(args.seed, args.stream, index) >= args.p;
      y[i] = rounded<T>(keep ? get(x, i) / (1 - args.p) : 0);
    });
  });
}

}  // namespace coshard::kernels::reference
