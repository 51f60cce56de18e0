// Layer norm and RMS norm over rows, and their gradients.
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/math.h"
#include "kernels/cpu/simd/parallel.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

// Weight gradients are summed per block of this many rows, then over the blocks in order.
constexpr std::int64_t kBlockRows = 128;

template <class T, class Lanes>
COSHARD_INLINE Vec weight_at(const Lanes& lanes, const T* weight, std::int64_t i) {
  return weight == nullptr ? all(1.0F) : lanes.load(weight + i);
}

// Sum over [0, dim) of term(i, lanes), which must be 0 in absent lanes.
template <class F>
COSHARD_INLINE Real sum_over(std::int64_t dim, F&& term) {
  Vec even{};
  Vec odd{};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= dim; i += 2 * kLanes) {
    even += term(i, Whole{});
    odd += term(i + kLanes, Whole{});
  }
  each_register(i, dim, [&](std::int64_t j, auto lanes) { even += term(j, lanes); });
  return sum_lanes(even + odd);
}

// Adds the [blocks, dim] partial sums in order, rounding once.
template <class T>
void store_sums(T* to, const Real* partial, std::int64_t blocks, std::int64_t dim) {
  if (to == nullptr) return;
  each_register(0, dim, [=](std::int64_t i, auto lanes) {
    Vec sum{};
    for (std::int64_t b = 0; b < blocks; ++b) sum += lanes.load(partial + b * dim + i);
    lanes.store(to + i, sum);
  });
}

void clear(Real* data, std::int64_t count) { std::memset(data, 0, count * sizeof(Real)); }

template <class T>
void layer_norm_row(const LayerNorm& args, std::int64_t row) {
  const T* x = as<T>(args.x) + row * args.dim;
  T* y = as<T>(args.y) + row * args.dim;
  const T* weight = as<T>(args.weight);
  const T* bias = as<T>(args.bias);
  const auto dim = static_cast<Real>(args.dim);
  const Real mean =
      sum_over(args.dim, [=](std::int64_t i, auto lanes) { return lanes.load(x + i); }) / dim;
  const Real squares = sum_over(args.dim, [=](std::int64_t i, auto lanes) {
    const Vec centred = lanes.load(x + i, mean) - mean;
    return centred * centred;
  });
  const Real rstd = 1.0F / square_root(squares / dim + static_cast<Real>(args.eps));
  each_register(
      0, args.dim, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec shift = bias == nullptr ? Vec{} : lanes.load(bias + i);
        lanes.store(y + i, (lanes.load(x + i) - mean) * rstd * weight_at(lanes, weight, i) + shift);
      });
  as<Real>(args.mean)[row] = mean;
  as<Real>(args.rstd)[row] = rstd;
}

template <class T>
void layer_norm_grad_row(const LayerNormGrad& args, std::int64_t row, Real* dweight, Real* dbias) {
  const T* x = as<T>(args.x) + row * args.dim;
  const T* dy = as<T>(args.dy) + row * args.dim;
  T* dx = as<T>(args.dx) + row * args.dim;
  const T* weight = as<T>(args.weight);
  const Real mean = as<Real>(args.mean)[row];
  const Real rstd = as<Real>(args.rstd)[row];
  Vec sums{};
  Vec dots{};
  each_register(
      0, args.dim, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec normal = (lanes.load(x + i, mean) - mean) * rstd;
        const Vec out = lanes.load(dy + i);
        const Vec grad = out * weight_at(lanes, weight, i);
        sums += grad;
        dots += grad * normal;
        lanes.store(dweight + i, lanes.load(dweight + i) + out * normal);
        lanes.store(dbias + i, lanes.load(dbias + i) + out);
      });
  const Real sum = sum_lanes(sums) / static_cast<Real>(args.dim);
  const Real dot = sum_lanes(dots) / static_cast<Real>(args.dim);
  each_register(
      0, args.dim, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec normal = (lanes.load(x + i) - mean) * rstd;
        const Vec grad = lanes.load(dy + i) * weight_at(lanes, weight, i);
        lanes.store(dx + i, rstd * (grad - sum - normal * dot));
      });
}

template <class T>
void rms_norm_row(const RmsNorm& args, std::int64_t row) {
  const T* x = as<T>(args.x) + row * args.dim;
  T* y = as<T>(args.y) + row * args.dim;
  const T* weight = as<T>(args.weight);
  const Real squares = sum_over(args.dim, [=](std::int64_t i, auto lanes) {
    const Vec v = lanes.load(x + i);
    return v * v;
  });
  const Real mean = squares / static_cast<Real>(args.dim);
  const Real rstd = 1.0F / square_root(mean + static_cast<Real>(args.eps));
  each_register(
      0, args.dim, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        lanes.store(y + i, lanes.load(x + i) * rstd * weight_at(lanes, weight, i));
      });
  as<Real>(args.rstd)[row] = rstd;
}

template <class T>
void rms_norm_grad_row(const RmsNormGrad& args, std::int64_t row, Real* dweight) {
  const T* x = as<T>(args.x) + row * args.dim;
  const T* dy = as<T>(args.dy) + row * args.dim;
  T* dx = as<T>(args.dx) + row * args.dim;
  const T* weight = as<T>(args.weight);
  const Real rstd = as<Real>(args.rstd)[row];
  Vec dots{};
  each_register(
      0, args.dim, [&](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec product = lanes.load(dy + i) * (lanes.load(x + i) * rstd);
        dots += product * weight_at(lanes, weight, i);
        lanes.store(dweight + i, lanes.load(dweight + i) + product);
      });
  const Real dot = sum_lanes(dots) / static_cast<Real>(args.dim);
  each_register(
      0, args.dim, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
        const Vec grad = lanes.load(dy + i) * weight_at(lanes, weight, i);
        lanes.store(dx + i, rstd * (grad - lanes.load(x + i) * rstd * dot));
      });
}

// Calls block(first row, end row, block number) over all blocks of rows.
template <class F>
void each_block(std::int64_t rows, std::int64_t blocks, const F& block) {
  parallel(blocks, 2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t last = (b + 1) * kBlockRows;
      block(b * kBlockRows, last < rows ? last : rows, b);
    }
  });
}

template <class Args, class Row>
void each_norm_row(const Args& args, const Row& row) {
  parallel(args.rows, row_grain(args.dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r);
  });
}

}  // namespace

void run(const LayerNorm& args) {
  with_stored(args.dtype, [&](auto tag) {
    each_norm_row(args, [&](std::int64_t r) { layer_norm_row<decltype(tag)>(args, r); });
  });
}

void run(const LayerNormGrad& args) {
  const std::int64_t blocks = (args.rows + kBlockRows - 1) / kBlockRows;
  Real* dweight = scratch_of<Real>(0, blocks * args.dim);
  Real* dbias = scratch_of<Real>(1, blocks * args.dim);
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_block(args.rows, blocks, [&](std::int64_t first, std::int64_t end, std::int64_t block) {
      clear(dweight + block * args.dim, args.dim);
      clear(dbias + block * args.dim, args.dim);
      for (std::int64_t r = first; r < end; ++r) {
        layer_norm_grad_row<T>(args, r, dweight + block * args.dim, dbias + block * args.dim);
      }
    });
    store_sums(as<T>(args.dweight), dweight, blocks, args.dim);
    store_sums(as<T>(args.dbias), dbias, blocks, args.dim);
  });
}

void run(const RmsNorm& args) {
  with_stored(args.dtype, [&](auto tag) {
    each_norm_row(args, [&](std::int64_t r) { rms_norm_row<decltype(tag)>(args, r); });
  });
}

void run(const RmsNormGrad& args) {
  const std::int64_t blocks = (args.rows + kBlockRows - 1) / kBlockRows;
  Real* dweight = scratch_of<Real>(0, blocks * args.dim);
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    each_block(args.rows, blocks, [&](std::int64_t first, std::int64_t end, std::int64_t block) {
      clear(dweight + block * args.dim, args.dim);
      for (std::int64_t r = first; r < end; ++r) {
        rms_norm_grad_row<T>(args, r, dweight + block * args.dim);
      }
    });
    store_sums(as<T>(args.dweight), dweight, blocks, args.dim);
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
