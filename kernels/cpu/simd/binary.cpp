// Elementwise functions of two strided, possibly broadcast tensors.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/strided.h"
#include "kernels/cpu/simd/vector_math.h"
#include "kernels/elementwise/binary_switch.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

template <class T, class F>
void combine(const Binary& args, F f) {
  const auto alpha = static_cast<Real>(args.alpha);
  const bool number = args.b.data == nullptr;  // the right operand is alpha
  const View* views[3] = {&args.out, &args.a, number ? &args.a : &args.b};
  const Loops<3> loops = loops_over(views);
  const std::int64_t out_stride = loops.stride(0);
  const std::int64_t a_stride = loops.stride(1);
  const std::int64_t b_stride = loops.stride(2);
  each_row(loops, [&](const std::int64_t(&at)[3], std::int64_t count) {
    T* out = as<T>(args.out.data) + at[0];
    const T* a = as<T>(static_cast<const void*>(args.a.data)) + at[1];
    const T* b = number ? a : as<T>(static_cast<const void*>(args.b.data)) + at[2];
    each_register(
        0, count, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          const std::int64_t here = count - i < kLanes ? count - i : kLanes;
          const Vec x = load_strided(lanes, a + i * a_stride, a_stride, here);
          const Vec y =
              number ? all(alpha) : load_strided(lanes, b + i * b_stride, b_stride, here) * alpha;
          const Vec value = f(x, y);
          if (out_stride == 1) {
            lanes.store(out + i, value);
          } else {
            T scattered[kLanes];
            store(scattered, value);
            for (std::int64_t l = 0; l < here; ++l) out[(i + l) * out_stride] = scattered[l];
          }
        });
  });
}

}  // namespace

void run(const Binary& args) {
  with_stored(args.out.dtype, [&](auto tag) {
    with_function(args.op, [&]<class F>(F) {
      if constexpr (F::kVectorValue)
        combine<decltype(tag)>(
            args, [](Vec x, Vec y)
                      __attribute__((always_inline)) { return F::value(VectorMath(), x, y); });
    });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
