#pragma once
// Random numbers by global element index. See kernels/args.h.
#include "kernels/args/view.h"

namespace coshard::kernels {

// Philox 4x32-10, counter = (index/4 low, index/4 high, stream low, stream high), key = seed; word
// index%4. `index` is the element's index in the *global* tensor, so any sharding draws the same
// numbers. The contiguous local tensor [shape] is at `offset` in a global tensor with
// `global_strides`.
struct RandomRegion {
  int ndim;
  std::array<std::int64_t, kMaxDims> shape, offset, global_strides;
};
enum class RandomKind : std::uint8_t {
  Uniform,  // [0,1): (word >> 8) * 2^-24 (f64: the same value)
  Normal,   // Box-Muller: words of the aligned pair (index & ~1): u1 = (word_even>>8 + 1) * 2^-24,
            // u2 = (word_odd>>8) * 2^-24; even index: sqrt(-2 ln u1) cos(2 pi u2), odd: sin
};
struct Random {
  RandomKind kind;
  DType dtype;
  RandomRegion region;
  std::uint64_t seed, stream;
  double scale = 1, shift = 0;
  void* out;
  // On a device, in a recorded step: where the kernel reads {seed, stream}; they replace `seed` and
  // are added to `stream`, respectively.
  const std::uint64_t* origin = nullptr;
};
// y = x * keep/(1-p), keep = uniform >= p; calling it on dy with the same seed and stream is the
// gradient.
struct Dropout {
  DType dtype;
  RandomRegion region;
  std::uint64_t seed, stream;
  double p;
  const void* x;
  void* y;
  const std::uint64_t* origin = nullptr;  // as above
};

// clang-format off
#define COSHARD_RANDOM_KERNELS(X) \
  X(Random) X(Dropout)
// clang-format on

}  // namespace coshard::kernels
