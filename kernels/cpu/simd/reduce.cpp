// Sums, means and extremes over the middle dimension of [outer, extent, inner], and sums of powers.
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

struct Add {
  static constexpr Real kNeutral = 0;
  COSHARD_INLINE static Vec join(Vec a, Vec b) { return a + b; }
  COSHARD_INLINE static Real lanes(Vec v) { return sum_lanes(v); }
};
struct Largest {
  static constexpr Real kNeutral = -kInf;
  COSHARD_INLINE static Vec join(Vec a, Vec b) { return maximum(a, b); }
  COSHARD_INLINE static Real lanes(Vec v) { return largest_lane(v); }
};
struct Smallest {
  static constexpr Real kNeutral = kInf;
  COSHARD_INLINE static Vec join(Vec a, Vec b) { return minimum(a, b); }
  COSHARD_INLINE static Real lanes(Vec v) { return smallest_lane(v); }
};

// A contiguous line, in four registers.
template <class Join, class T>
Real reduce_row(const T* x, std::int64_t extent) {
  Vec sums[4] = {all(Join::kNeutral), all(Join::kNeutral), all(Join::kNeutral),
                 all(Join::kNeutral)};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= extent; i += 4 * kLanes) {
    for (int r = 0; r < 4; ++r) sums[r] = Join::join(sums[r], load(x + i + r * kLanes));
  }
  each_register(i, extent, [&](std::int64_t j, auto lanes) {
    sums[0] = Join::join(sums[0], lanes.load(x + j, Join::kNeutral));
  });
  return Join::lanes(Join::join(Join::join(sums[0], sums[1]), Join::join(sums[2], sums[3])));
}

// `width` neighbouring lines that are `inner` wide, over `extent`, times `factor`.
template <class Join, class T>
void reduce_columns(const T* x, T* y, std::int64_t width, std::int64_t extent, std::int64_t inner,
                    Real factor) {
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= width; i += 4 * kLanes) {
    Vec sums[4] = {all(Join::kNeutral), all(Join::kNeutral), all(Join::kNeutral),
                   all(Join::kNeutral)};
    for (std::int64_t e = 0; e < extent; ++e) {
      for (int r = 0; r < 4; ++r) {
        sums[r] = Join::join(sums[r], load(x + e * inner + i + r * kLanes));
      }
    }
    for (int r = 0; r < 4; ++r) store(y + i + r * kLanes, sums[r] * factor);
  }
  each_register(i, width, [=](std::int64_t j, auto lanes) {
    Vec sum = all(Join::kNeutral);
    for (std::int64_t e = 0; e < extent; ++e) sum = Join::join(sum, lanes.load(x + e * inner + j));
    lanes.store(y + j, sum * factor);
  });
}

template <class Join, class T>
void reduce(const ReduceDim& args) {
  const T* x = as<T>(args.x);
  T* y = as<T>(args.y);
  const Real factor = args.op == ReduceOp::Mean ? 1.0F / static_cast<Real>(args.extent) : 1.0F;
  parallel(args.outer, row_grain(args.extent * args.inner),
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t o = begin; o < end; ++o) {
               if (args.inner == 1) {
                 y[o] = reduce_row<Join>(x + o * args.extent, args.extent) * factor;
               } else {
                 reduce_columns<Join>(x + o * args.extent * args.inner, y + o * args.inner,
                                      args.inner, args.extent, args.inner, factor);
               }
             }
           });
}

// The partial results of PowSum: one double per chunk of kGrain elements.
#if defined(COSHARD_F64)
double sum_of_squares(const double* x, std::int64_t count) {
  Vec sum{};
  each_register(
      0, count, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec v = lanes.load(x + i);
        sum += v * v;
      });
  return sum_lanes(sum);
}
#else
template <class T>
double sum_of_squares(const T* x, std::int64_t count) {
  DVec low{};
  DVec high{};
  each_register(
      0, count, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec v = lanes.load(x + i);
        HalfVec halves[2];
        std::memcpy(halves, &v, sizeof v);
        const DVec a = __builtin_convertvector(halves[0], DVec);
        const DVec b = __builtin_convertvector(halves[1], DVec);
        low += a * a;
        high += b * b;
      });
  double sum = 0;
  for (int l = 0; l < kLanes / 2; ++l) sum += low[l] + high[l];
  return sum;
}
#endif

template <class T>
double largest_size(const T* x, std::int64_t count) {
  Vec best{};
  each_register(0, count, [&](std::int64_t i, auto lanes) {
    best = maximum(best, absolute(lanes.load(x + i)));
  });
  return largest_lane(best);
}

}  // namespace

void run(const ReduceDim& args) {
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    switch (args.op) {
      case ReduceOp::Sum:
      case ReduceOp::Mean: return reduce<Add, T>(args);
      case ReduceOp::Max: return reduce<Largest, T>(args);
      case ReduceOp::Min: return reduce<Smallest, T>(args);
      default: break;  // handled by the reference
    }
  });
}

// Only called with p = 2 or p = 0.
void run(const PowSum& args) {
  const std::int64_t chunks = (args.count + kGrain - 1) / kGrain;
  auto* partial = scratch_of<double>(0, chunks);
  with_stored(args.dtype, [&](auto tag) {
    const auto* x = as<decltype(tag)>(args.x);
    parallel(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const std::int64_t first = c * kGrain;
        const std::int64_t count = args.count - first < kGrain ? args.count - first : kGrain;
        partial[c] =
            args.p == 0 ? largest_size(x + first, count) : sum_of_squares(x + first, count);
      }
    });
  });
  double result = 0;
  for (std::int64_t c = 0; c < chunks; ++c) {
    if (args.p != 0) {
      result += partial[c];
    } else if (partial[c] > result || partial[c] != partial[c]) {
      result = partial[c];
    }
    if (result != result) break;
  }
  *args.result = result;
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
