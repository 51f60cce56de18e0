// Random numbers by global element index, and dropout. A thread draws the four words of one Philox
// block, which are adjacent in the global tensor and, within a run, in local memory.
#include <cmath>

#include "kernels/cuda/strided.h"
#include "kernels/cuda/typed.h"
#include "kernels/philox.h"
#include "runtime/device/cuda/arithmetic.h"
#include "runtime/device/cuda/pack.h"

namespace coshard::kernels::cuda {
namespace {

constexpr double kRandomUnit = 1.0 / (1 << 24);

// The runs of a region: elements that are also adjacent in the global tensor. A kernel member.
struct RandomRuns {
  StridedIndex<1> runs;   // where they begin, from `base`
  std::int64_t base = 0;  // global index of the first element
  std::int64_t length = 1;
  std::int64_t blocks = 1;  // at most this many Philox blocks per run
  std::uint64_t seed = 0, stream = 0;
  const std::uint64_t* origin = nullptr;

  std::int64_t units() const { return runs.count * blocks; }
};

template <class Args>
RandomRuns random_runs(const Args& args, void* local) {
  const RandomRegion& region = args.region;
  RandomRuns all;
  View global{local, DType::F32, region.ndim, region.shape, region.global_strides};
  for (std::size_t d = 0; d < static_cast<std::size_t>(region.ndim); ++d)
    all.base += region.offset[d] * region.global_strides[d];
  all.runs = strided_index<1>({&global});
  const int last = all.runs.ndim - 1;
  if (last >= 0 && all.runs.strides[0][last] == 1) {
    all.length = all.runs.shape[last];
    all.runs.ndim = last;
    all.runs.settle();
  }
  if (all.length == 0) all.runs.count = 0;
  all.blocks = (all.length + 6) / 4;
  all.seed = args.seed;
  all.stream = args.stream;
  all.origin = args.origin;
  return all;
}

// Four adjacent elements: word e belongs to the run's element first + e, if it exists.
struct RandomPlace {
  std::int64_t local;  // of word 0; its memory may be another run's
  std::int64_t first, length;
  Words words;

  CS_BODY RandomPlace(const RandomRuns& all, std::int64_t unit) : length(all.length) {
    const std::int64_t run = all.runs.count == 1 ? 0 : unit / all.blocks;
    std::int64_t begin[1];
    all.runs.offsets(run, begin);
    begin[0] += all.base;
    const std::int64_t block = begin[0] / 4 + (unit - run * all.blocks);
    first = block * 4 - begin[0];
    local = run * length + first;
    const std::uint64_t seed = all.origin != nullptr ? all.origin[0] : all.seed;
    const std::uint64_t stream = all.origin != nullptr ? all.origin[1] + all.stream : all.stream;
    words = philox_block(seed, stream, static_cast<std::uint64_t>(block));
  }
  CS_BODY bool has(int e) const { return first + e >= 0 && first + e < length; }
  template <class T>
  CS_BODY bool whole(const T* data) const {
    constexpr std::uintptr_t kAligned = alignof(Pack<T, 4>);
    return has(0) && has(3) && reinterpret_cast<std::uintptr_t>(data + local) % kAligned == 0;
  }
  template <class T>
  CS_BODY void store(T* to, const Pack<T, 4>& pack) const {
    if (whole(to)) return store_pack<4>(to + local, pack);
    CS_UNROLL
    for (int e = 0; e < 4; ++e)
      if (has(e)) to[local + e] = pack.at[e];
  }
};

template <class T>
struct RandomKernel : PerElement {
  RandomRuns all;
  std::int64_t units;
  RandomKind kind;
  double scale, shift;
  T* out;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t unit = block.grid_thread(); unit < units; unit += block.grid_threads()) {
      const RandomPlace place(all, unit);
      double draws[4];
      if (kind == RandomKind::Uniform) {
        CS_UNROLL
        for (int e = 0; e < 4; ++e) draws[e] = (place.words[e] >> 8) * kRandomUnit;
      } else {
        normal(place.words[0], place.words[1], draws[0], draws[1]);
        normal(place.words[2], place.words[3], draws[2], draws[3]);
      }
      Pack<T, 4> pack;
      CS_UNROLL
      for (int e = 0; e < 4; ++e) pack.at[e] = placed(draws[e]);
      place.store(out, pack);
    }
  }

  // A Box-Muller pair, in double, so that devices and hosts draw the same parameters.
  CS_BODY static void normal(std::uint32_t even, std::uint32_t odd, double& first, double& second) {
    const double u1 = ((even >> 8) + 1) * kRandomUnit;
    const double angle = 6.28318530717958647692 * ((odd >> 8) * kRandomUnit);
    const double size = std::sqrt(-2 * std::log(u1));
    first = size * std::cos(angle);
    second = size * std::sin(angle);
  }

  // Rounds like the CPU: f64 twice, the others once, in f32.
  CS_BODY T placed(double draw) const {
    if constexpr (std::is_same_v<T, double>) {
      return multiply_then_add(draw, scale, shift);
    } else {
      return static_cast<T>(
          std::fma(static_cast<float>(draw), static_cast<float>(scale), static_cast<float>(shift)));
    }
  }
};

template <class T>
struct DropoutKernel : PerElement {
  RandomRuns all;
  std::int64_t units;
  std::uint32_t least;  // the smallest 24-bit draw that keeps the element
  Wide<T> factor;
  const T* x;
  T* y;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t unit = block.grid_thread(); unit < units; unit += block.grid_threads()) {
      const RandomPlace place(all, unit);
      Pack<T, 4> pack{};
      if (place.whole(x)) {
        pack = load_pack<4>(x + place.local);
      } else {
        CS_UNROLL
        for (int e = 0; e < 4; ++e)
          if (place.has(e)) pack.at[e] = x[place.local + e];
      }
      CS_UNROLL
      for (int e = 0; e < 4; ++e) {
        const bool keep = place.words[e] >> 8 >= least;
        pack.at[e] = static_cast<T>(keep ? widen(pack.at[e]) * factor : Wide<T>(0));
      }
      place.store(y, pack);
    }
  }
};

}  // namespace

void run(CudaDevice& device, const Random& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    RandomKernel<T> kernel{};
    kernel.all = random_runs(args, args.out);
    kernel.units = kernel.all.units();
    kernel.kind = args.kind;
    kernel.scale = args.scale;
    kernel.shift = args.shift;
    kernel.out = as<T>(args.out);
    launch_elements(device, "random", kernel, kernel.units);
  });
}

void run(CudaDevice& device, const Dropout& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    DropoutKernel<T> kernel{};
    kernel.all = random_runs(args, args.y);
    kernel.units = kernel.all.units();
    kernel.least = static_cast<std::uint32_t>(std::ceil(args.p * (1 << 24)));
    kernel.factor = static_cast<Wide<T>>(1 / (1 - args.p));
    kernel.x = as<T>(args.x);
    kernel.y = as<T>(args.y);
    launch_elements(device, "dropout", kernel, kernel.units);
  });
}

}  // namespace coshard::kernels::cuda
