// Elementwise functions of two strided, possibly broadcast tensors.
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/vector_math.h"
#include "kernels/elementwise/binary_switch.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

using Bools [[gnu::vector_size(kLanes)]] = std::int8_t;
COSHARD_INLINE void store_bools(bool* to, IVec holds) {
  const Bools ones = __builtin_convertvector(holds, Bools) & 1;
  std::memcpy(to, &ones, sizeof ones);
}

// A product that is rounded before it is added.
COSHARD_INLINE Vec rounded(Vec product) {
#if defined(__x86_64__)
  asm("" : "+x"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#endif
  return product;
}

template <class F, class T>
void combine(const Registers& registers) {
  constexpr bool kCompares = elementwise::Comparison<F>;
  const Vec alpha = all(registers.a);
  auto* out = registers.of<std::conditional_t<kCompares, bool, T>>(0);
  const T* a = registers.of<const T>(1);
  const T* b = registers.of<const T>(2);
  const std::int64_t count = registers.count, a_step = registers.step[1],
                     b_step = registers.step[2];
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Vec x = load(a);
    const Vec y = rounded(load(b) * alpha);
    if constexpr (kCompares) {
      store_bools(out + i, F::holds(x, y));
    } else {
      store(out + i, F::value(VectorMath(), x, y));
    }
    a += a_step;
    b += b_step;
  }
}

}  // namespace

// Comparisons only with a number or unscaled: a product would be rounded.
void run(const Binary& args) {
  const DType dtype = args.a.dtype;
  const bool number = args.b.data == nullptr;  // the right operand is alpha: alpha times 1
  const View* views[3] = {&args.out, &args.a, number ? &args.a : &args.b};
  const Loops<3> loops = loops_over(views);
  char one[sizeof(double)];
  Elementwise loop{};
  with_stored(dtype, [&]<class T>(T) {
    const T unit(1.0F);
    std::memcpy(one, &unit, sizeof unit);
    with_function(args.op, [&]<class F>(F) {
      if constexpr (elementwise::Comparison<F>) {
        loop.a = static_cast<Real>(T(static_cast<Real>(args.alpha)));
        loop.body = combine<F, T>;
      } else if constexpr (F::kVectorValue) {
        loop.a = static_cast<Real>(args.alpha);
        loop.body = combine<F, T>;
      }
    });
  });
  loop.results = 1;
  loop.operands = 3;
  loop.of[0] = {args.out.dtype, args.out.data, loops.stride(0)};
  loop.of[1] = {dtype, args.a.data, loops.stride(1)};
  loop.of[2] = {dtype, number ? one : args.b.data, number ? 0 : loops.stride(2)};
  each_row(loops, [&](const std::int64_t(&at)[3], std::int64_t count) {
    const std::int64_t first[3] = {at[0], at[1], number ? 0 : at[2]};
    run_row({loop, first, count});
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
