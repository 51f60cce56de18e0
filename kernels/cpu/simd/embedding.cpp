// Embedding lookup, and its gradient by sums into the table.
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "kernels/cpu/simd/vec.h"

namespace coshard::kernels::cpu::COSHARD_ISA {
namespace {

COSHARD_INLINE std::int64_t id_at(DType dtype, const void* ids, std::int64_t i) {
  return dtype == DType::I64 ? as<std::int64_t>(ids)[i] : as<std::int32_t>(ids)[i];
}

}  // namespace

void run(const Embedding& args) {
  const std::int64_t bytes = args.dim * static_cast<std::int64_t>(size_of(args.dtype));
  const auto* weight = as<char>(args.weight);
  auto* out = as<char>(args.out);
  parallel(args.count, row_grain(args.dim), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = id_at(args.ids_dtype, args.ids, i) - args.first;
      if (row >= 0 && row < args.rows) {
        std::memcpy(out + i * bytes, weight + row * bytes, bytes);
      } else {
        std::memset(out + i * bytes, 0, bytes);
      }
    }
  });
}

// Summed by one thread, in the order of the indices.
void run(const EmbeddingGrad& args) {
  const std::int64_t size = args.rows * args.dim;
  with_stored(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* dout = as<T>(args.dout);
    constexpr bool kInPlace = std::is_same_v<T, Real>;
    Real* sums = kInPlace ? as<Real>(args.dweight) : scratch_of<Real>(0, size);
    std::memset(sums, 0, size * sizeof(Real));
    for (std::int64_t i = 0; i < args.count; ++i) {
      const std::int64_t id = id_at(args.ids_dtype, args.ids, i);
      const std::int64_t row = id - args.first;
      if (row < 0 || row >= args.rows || (args.padding >= 0 && id == args.padding)) continue;
      each_register(
          0, args.dim, [=](std::int64_t d, auto lanes) __attribute__((always_inline)) {
            Real* sum = sums + row * args.dim + d;
            lanes.store(sum, lanes.load(sum) + lanes.load(dout + i * args.dim + d));
          });
    }
    if (kInPlace) return;
    T* dweight = as<T>(args.dweight);
    each_register(
        0, size, [=](std::int64_t i, auto lanes) __attribute__((always_inline)) {
          lanes.store(dweight + i, lanes.load(sums + i));
        });
  });
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
