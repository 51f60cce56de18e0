// Philox numbers by global element index, kLanes blocks of four at a time.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

constexpr float kUnit = 1.0F / (1 << 24);
constexpr std::int64_t kBatch = 4 * kLanes;  // elements drawn at once

struct Key {
  std::uint64_t seed, stream;
};

COSHARD_INLINE void multiply(UVec a, std::uint32_t b, UVec& high, UVec& low) {
  for (int l = 0; l < kLanes; ++l) {
    high[l] = static_cast<std::uint32_t>((std::uint64_t{a[l]} * b) >> 32);
  }
  low = a * b;
}

// words[w] lane l = word w of block first + l.
COSHARD_INLINE void draw(Key key, std::uint64_t first, UVec (&words)[4]) {
  UVec c[4];
  for (int l = 0; l < kLanes; ++l) {
    c[0][l] = static_cast<std::uint32_t>(first + l);
    c[1][l] = static_cast<std::uint32_t>((first + l) >> 32);
  }
  c[2] = static_cast<std::uint32_t>(key.stream) - UVec{};
  c[3] = static_cast<std::uint32_t>(key.stream >> 32) - UVec{};
  auto k0 = static_cast<std::uint32_t>(key.seed);
  auto k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    UVec high0;
    UVec low0;
    UVec high1;
    UVec low1;
    multiply(c[0], 0xD2511F53U, high0, low0);
    multiply(c[2], 0xCD9E8D57U, high1, low1);
    c[0] = high1 ^ c[1] ^ k0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ k1;
    c[3] = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  for (int w = 0; w < 4; ++w) words[w] = c[w];
}

COSHARD_INLINE Vec unit(UVec word) {
  return __builtin_convertvector(reinterpret_cast<IVec>(word >> 8), Vec) * kUnit;
}

// values[4 * l + w]: element w of block first + l.
COSHARD_INLINE void interleave(const Vec (&words)[4], float* values) {
  for (int l = 0; l < kLanes; ++l) {
    for (int w = 0; w < 4; ++w) values[4 * l + w] = words[w][l];
  }
}

void uniform_batch(Key key, std::uint64_t first, float* values) {
  UVec words[4];
  draw(key, first, words);
  const Vec units[4] = {unit(words[0]), unit(words[1]), unit(words[2]), unit(words[3])};
  interleave(units, values);
}

void normal_batch(Key key, std::uint64_t first, float* values) {
  UVec words[4];
  draw(key, first, words);
  Vec normals[4];
  for (int pair = 0; pair < 4; pair += 2) {
    const Vec size = square_root(-2.0F * logarithm(unit(words[pair]) + kUnit));
    Vec cosine;
    Vec sine;
    turn(unit(words[pair + 1]), cosine, sine);
    normals[pair] = size * cosine;
    normals[pair + 1] = size * sine;
  }
  interleave(normals, values);
}

// Draws elements [index, index + count) of the global tensor; calls use(values, position, n) for
// each piece.
template <class Batch, class Use>
void draw_run(Key key, std::int64_t index, std::int64_t count, Batch batch, const Use& use) {
  alignas(64) float values[kBatch];
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = index + done;
    const std::int64_t skip = at % 4;
    const std::int64_t left = count - done;
    const std::int64_t n = left < kBatch - skip ? left : kBatch - skip;
    batch(key, static_cast<std::uint64_t>(at / 4), values);
    use(values + skip, done, n);
    done += n;
  }
}

// Calls use(values, local position, n) over a region whose last dimension is contiguous in the
// global tensor.
template <class Batch, class Use>
void draw_region(const RandomRegion& region, Key key, Batch batch, const Use& use) {
  const int last = region.ndim - 1;
  const std::int64_t inner = last < 0 ? 1 : region.shape[last];
  std::int64_t rows = 1;
  std::int64_t base = 0;
  for (int d = 0; d <= last; ++d) {
    base += region.offset[d] * region.global_strides[d];
    if (d < last) rows *= region.shape[d];
  }
  if (rows == 1) {
    return parallel(inner, kGrain, [&](std::int64_t begin, std::int64_t end) {
      draw_run(key, base + begin, end - begin, batch,
               [&](const float* values, std::int64_t at, std::int64_t n) {
                 use(values, begin + at, n);
               });
    });
  }
  parallel(rows, row_grain(inner), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t index = base;
      std::int64_t rest = row;
      for (int d = last - 1; d >= 0; --d) {
        index += rest % region.shape[d] * region.global_strides[d];
        rest /= region.shape[d];
      }
      draw_run(key, index, inner, batch, [&](const float* values, std::int64_t at, std::int64_t n) {
        use(values, row * inner + at, n);
      });
    }
  });
}

}  // namespace

// Only called if the region's last global stride is 1 (or the region has no dimensions).
void run(const Random& args) {
  const auto scale = static_cast<float>(args.scale);
  const auto shift = static_cast<float>(args.shift);
  const auto batch = args.kind == RandomKind::Uniform ? uniform_batch : normal_batch;
  with_stored(args.dtype, [&](auto tag) {
    auto* out = as<decltype(tag)>(args.out);
    draw_region(args.region, {args.seed, args.stream}, batch,
                [=](const float* values, std::int64_t at, std::int64_t n) {
                  each_register(
                      0, n, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
                        lanes.store(out + at + i, lanes.load(values + i) * scale + shift);
                      });
                });
  });
}

void run(const Dropout& args) {
  // Exactly the smallest uniform draw that is not below p.
  const auto p = static_cast<float>(__builtin_ceil(args.p * (1 << 24))) * kUnit;
  const auto factor = static_cast<float>(1 / (1 - args.p));
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* x = as<T>(args.x);
    T* y = as<T>(args.y);
    draw_region(args.region, {args.seed, args.stream}, uniform_batch,
                [=](const float* values, std::int64_t at, std::int64_t n) {
                  each_register(
                      0, n, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
                        const Vec kept = lanes.load(x + at + i) * factor;
                        lanes.store(y + at + i,
                                    select(lanes.load(values + i) >= all(p), kept, Vec{}));
                      });
                });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
