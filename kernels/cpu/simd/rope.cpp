// Rotary embedding of [batch, seq, heads, dim] views whose last dimension is contiguous.
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "kernels/cpu/simd/vec.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

// Only called with last strides of 1.
void run(const Rope& args) {
  const std::int64_t batch = args.x.shape[0];
  const std::int64_t seq = args.x.shape[1];
  const std::int64_t heads = args.x.shape[2];
  const std::int64_t half = args.x.shape[3] / 2;
  const Real* table = rotary_table<Real>(args);
  const Real sign = args.inverse ? -1.0F : 1.0F;
  const auto& xs = args.x.strides;
  const auto& ys = args.y.strides;
  with_stored(args.x.dtype, [&](auto tag) {
    using T = decltype(tag);
    parallel(batch * seq, row_grain(heads * half * 2), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t b = row / seq;
        const std::int64_t s = row % seq;
        const T* x = as<T>(static_cast<const void*>(args.x.data)) + b * xs[0] + s * xs[1];
        T* y = as<T>(args.y.data) + b * ys[0] + s * ys[1];
        const Real* cosine = table + 2 * (args.positions.data ? row : s) * half;
        const Real* sine = cosine + half;
        for (std::int64_t h = 0; h < heads; ++h) {
          const T* from = x + h * xs[2];
          T* to = y + h * ys[2];
          each_register(
              0, half, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
                const Vec c = lanes.load(cosine + i);
                const Vec sn = lanes.load(sine + i) * sign;
                const Vec low = lanes.load(from + i);
                const Vec high = lanes.load(from + half + i);
                lanes.store(to + i, low * c - high * sn);
                lanes.store(to + half + i, high * c + low * sn);
              });
        }
      }
    });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
