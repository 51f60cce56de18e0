// The steps of a class-sharded cross-entropy, row by row.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

template <class Args, class Row>
void each_logits_row(const Args& args, const Row& row) {
  parallel(args.rows, row_grain(args.classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r);
  });
}

template <class T>
void stats_row(const CrossEntropyStats& args, std::int64_t r) {
  const T* logits = as<T>(args.logits) + r * args.classes;
  Vec highs = all(-kInf);
  each_register(
      0, args.classes, [&](std::int64_t c, auto lanes) __attribute__((always_inline)) {
        highs = maximum(highs, lanes.load(logits + c, -kInf));
      });
  const Real high = largest_lane(highs);
  const Real from = high == -kInf ? 0.0F : high;
  Vec sums{};
  Vec totals{};
  each_register(
      0, args.classes, [&](std::int64_t c, auto lanes) __attribute__((always_inline)) {
        sums += exponential(lanes.load(logits + c, -kInf) - from);
        totals += lanes.load(logits + c, 0.0F);
      });
  const std::int64_t target = as<std::int64_t>(args.target)[r];
  const std::int64_t own = target - args.first;
  const bool here = target != args.ignore && own >= 0 && own < args.classes;
  as<Real>(args.max)[r] = high;
  as<Real>(args.sum)[r] = sum_lanes(sums);
  as<Real>(args.picked)[r] = here ? static_cast<Real>(logits[own]) : 0.0F;
  if (args.total != nullptr) as<Real>(args.total)[r] = sum_lanes(totals);
}

template <class T>
void grad_row(const CrossEntropyGrad& args, std::int64_t r) {
  const T* logits = as<T>(args.logits) + r * args.classes;
  T* dlogits = as<T>(args.dlogits) + r * args.classes;
  const std::int64_t target = as<std::int64_t>(args.target)[r];
  if (target == args.ignore) {
    for (std::int64_t c = 0; c < args.classes; ++c) dlogits[c] = T(0.0F);
    return;
  }
  const Real high = as<Real>(args.max)[r];
  const Real scale = as<Real>(args.scale)[r];
  const Real factor = scale / as<Real>(args.sum)[r];
  const double smoothing = args.smoothing;
  const Real everywhere =
      smoothing == 0 ? 0.0F
                     : scale * static_cast<Real>(smoothing / static_cast<double>(args.all_classes));
  const std::int64_t own = target - args.first;
  const bool here = own >= 0 && own < args.classes;
  const Real picked = here ? static_cast<Real>(logits[own]) : 0.0F;
  each_register(
      0, args.classes, [=](std::int64_t c, auto lanes) __attribute__((always_inline)) {
        lanes.store(dlogits + c, exponential(lanes.load(logits + c) - high) * factor - everywhere);
      });
  if (here) {
    const Real hit = exponential(all(picked - high))[0] * factor - everywhere;
    dlogits[own] = hit - scale * static_cast<Real>(1 - smoothing);
  }
}

}  // namespace

void run(const CrossEntropyStats& args) {
  with_stored(args.dtype, [&](auto tag) {
    each_logits_row(args, [&](std::int64_t r) { stats_row<decltype(tag)>(args, r); });
  });
}

void run(const CrossEntropyGrad& args) {
  with_stored(args.dtype, [&](auto tag) {
    each_logits_row(args, [&](std::int64_t r) { grad_row<decltype(tag)>(args, r); });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
