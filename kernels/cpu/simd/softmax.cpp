// Softmax and log-softmax over the middle dimension of [outer, extent, inner], and their gradients.
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

template <class T>
void softmax_row(const Softmax& args, std::int64_t row, Real* powers) {
  const T* x = as<T>(args.x) + row * args.extent;
  T* y = as<T>(args.y) + row * args.extent;
  Vec highs = all(-kInf);
  each_register(
      0, args.extent, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        highs = maximum(highs, lanes.load(x + i, -kInf));
      });
  const Real high = largest_lane(highs);
  Vec sums{};
  each_register(
      0, args.extent, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec power = exponential(lanes.load(x + i, -kInf) - high);
        sums += power;
        lanes.store(powers + i, power);
      });
  const Real sum = sum_lanes(sums);
  if (args.log) {
    const Real shift = logarithm(all(sum))[0];
    each_register(
        0, args.extent, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          lanes.store(y + i, lanes.load(x + i) - high - shift);
        });
  } else {
    const Real factor = 1.0F / sum;
    each_register(
        0, args.extent, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          lanes.store(y + i, lanes.load(powers + i) * factor);
        });
  }
}

// One register of neighbouring lines; `at` is the offset of their first elements.
template <class T, class Lanes>
COSHARD_INLINE void softmax_lines(const Softmax& args, std::int64_t at, Lanes lanes) {
  const T* x = as<T>(args.x) + at;
  T* y = as<T>(args.y) + at;
  Vec high = all(-kInf);
  for (std::int64_t e = 0; e < args.extent; ++e)
    high = maximum(high, lanes.load(x + e * args.inner));
  Vec sum{};
  for (std::int64_t e = 0; e < args.extent; ++e) {
    sum += exponential(lanes.load(x + e * args.inner) - high);
  }
  const Vec scale = args.log ? logarithm(sum) : 1.0F / sum;
  for (std::int64_t e = 0; e < args.extent; ++e) {
    const Vec shifted = lanes.load(x + e * args.inner) - high;
    lanes.store(y + e * args.inner, args.log ? shifted - scale : exponential(shifted) * scale);
  }
}

template <class T>
void softmax_grad_row(const SoftmaxGrad& args, std::int64_t row) {
  const T* y = as<T>(args.y) + row * args.extent;
  const T* dy = as<T>(args.dy) + row * args.extent;
  T* dx = as<T>(args.dx) + row * args.extent;
  Vec sums{};
  each_register(
      0, args.extent, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec grad = lanes.load(dy + i);
        sums += args.log ? grad : grad * lanes.load(y + i);
      });
  const Real sum = sum_lanes(sums);
  each_register(
      0, args.extent, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec grad = lanes.load(dy + i);
        const Vec out = lanes.load(y + i);
        lanes.store(dx + i, args.log ? grad - exponential(out) * sum : out * (grad - sum));
      });
}

template <class T, class Lanes>
COSHARD_INLINE void softmax_grad_lines(const SoftmaxGrad& args, std::int64_t at, Lanes lanes) {
  const T* y = as<T>(args.y) + at;
  const T* dy = as<T>(args.dy) + at;
  T* dx = as<T>(args.dx) + at;
  Vec sum{};
  for (std::int64_t e = 0; e < args.extent; ++e) {
    const Vec grad = lanes.load(dy + e * args.inner);
    sum += args.log ? grad : grad * lanes.load(y + e * args.inner);
  }
  for (std::int64_t e = 0; e < args.extent; ++e) {
    const Vec grad = lanes.load(dy + e * args.inner);
    const Vec out = lanes.load(y + e * args.inner);
    lanes.store(dx + e * args.inner, args.log ? grad - exponential(out) * sum : out * (grad - sum));
  }
}

// Calls row(outer index) if lines are contiguous, else lines(offset, lanes) for registers of
// neighbouring lines.
template <class Args, class Row, class Lines>
void each_line(const Args& args, const Row& row, const Lines& lines) {
  const std::int64_t plane = args.extent * args.inner;
  parallel(args.outer, row_grain(plane), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      if (args.inner == 1) {
        row(o);
      } else {
        each_register(0, args.inner,
                      [&](std::int64_t i, auto lanes) { lines(o * plane + i, lanes); });
      }
    }
  });
}

}  // namespace

void run(const Softmax& args) {
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_line(
        args,
        [&](std::int64_t row) { softmax_row<T>(args, row, scratch_of<Real>(0, args.extent)); },
        [&](std::int64_t at, auto lanes) { softmax_lines<T>(args, at, lanes); });
  });
}

void run(const SoftmaxGrad& args) {
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_line(
        args, [&](std::int64_t row) { softmax_grad_row<T>(args, row); },
        [&](std::int64_t at, auto lanes) { softmax_grad_lines<T>(args, at, lanes); });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
