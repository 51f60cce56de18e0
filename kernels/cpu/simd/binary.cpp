// Elementwise functions of two strided, possibly broadcast tensors.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/strided.h"
#include "kernels/cpu/simd/vector_math.h"
#include "kernels/elementwise/binary_switch.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

using Bools [[gnu::vector_size(kLanes)]] = std::int8_t;
template <class Lanes>
COSHARD_INLINE void store_result(const Lanes&, bool* to, IVec holds, std::int64_t count) {
  const Bools ones = __builtin_convertvector(holds, Bools) & 1;
  std::memcpy(to, &ones, count);
}
template <class Lanes, class T>
requires(!std::is_same_v<T, bool>) COSHARD_INLINE
    void store_result(const Lanes& lanes, T* to, Vec value, std::int64_t) {
  lanes.store(to, value);
}

// Out is T, or bool for a comparison.
template <class Out, class T, class F>
void combine(const Binary& args, Real alpha, F f) {
  const bool number = args.b.data == nullptr;  // the right operand is alpha
  const View* views[3] = {&args.out, &args.a, number ? &args.a : &args.b};
  const Loops<3> loops = loops_over(views);
  const std::int64_t out_stride = loops.stride(0);
  const std::int64_t a_stride = loops.stride(1);
  const std::int64_t b_stride = loops.stride(2);
  each_row(loops, [&](const std::int64_t(&at)[3], std::int64_t count) {
    Out* out = as<Out>(args.out.data) + at[0];
    const T* a = as<T>(static_cast<const void*>(args.a.data)) + at[1];
    const T* b = number ? a : as<T>(static_cast<const void*>(args.b.data)) + at[2];
    each_register(
        0, count, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          const std::int64_t here = count - i < kLanes ? count - i : kLanes;
          const Vec x = load_strided(lanes, a + i * a_stride, a_stride, here);
          const Vec y =
              number ? all(alpha) : load_strided(lanes, b + i * b_stride, b_stride, here) * alpha;
          const auto value = f(x, y);
          if (out_stride == 1) {
            store_result(lanes, out + i, value, here);
          } else {
            Out scattered[kLanes];
            store_result(Whole{}, scattered, value, kLanes);
            for (std::int64_t l = 0; l < here; ++l) out[(i + l) * out_stride] = scattered[l];
          }
        });
  });
}

}  // namespace

// Comparisons only with a number or unscaled: a product would be rounded.
void run(const Binary& args) {
  const auto alpha = static_cast<Real>(args.alpha);
  with_stored(args.a.dtype, [&](auto tag) {
    using T = decltype(tag);
    with_function(args.op, [&]<class F>(F) {
      if constexpr (elementwise::Comparison<F>) {
        combine<bool, T>(
            args, static_cast<Real>(T(alpha)),
            [](Vec x, Vec y) __attribute__((always_inline)) { return F::holds(x, y); });
      } else if constexpr (F::kVectorValue) {
        combine<T, T>(
            args, alpha, [](Vec x, Vec y) __attribute__((always_inline)) {
              return F::value(VectorMath(), x, y);
            });
      }
    });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
