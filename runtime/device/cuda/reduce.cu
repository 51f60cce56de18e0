#include "runtime/device/cuda/reduce.h"

#include <algorithm>
#include <type_traits>

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/launch.h"
#include "runtime/device/cuda/pack.h"

namespace coshard {
namespace {

constexpr int kSources = 128;  // their addresses are kernel arguments

// NaN propagates; integers wrap around.
template <Reduce op, class A>
CS_BODY A combined(A a, A b) {
  if constexpr (op == Reduce::Min) {
    return b < a || b != b ? b : a;
  } else if constexpr (op == Reduce::Max) {
    return a < b || b != b ? b : a;
  } else if constexpr (std::is_integral_v<A>) {
    using Bits = std::make_unsigned_t<A>;
    const auto x = static_cast<Bits>(a), y = static_cast<Bits>(b);
    return static_cast<A>(op == Reduce::Product ? x * y : x + y);
  } else {
    return op == Reduce::Product ? a * b : a + b;
  }
}

// Packs of 16 bytes if addresses allow it; a head and a tail of single elements.
template <class T>
struct ReduceKernel : PerElement {
  using Sum = std::conditional_t<is_short_float<T>, float, T>;
  static constexpr int kPack = kPackOf<T>;
  const T* sources[kSources];
  int source_count;
  int divisor;  // for averages; otherwise 1
  Reduce reduce;
  T* target;
  std::int64_t head, packs, singles;  // the head's are the first of the singles

  CS_BODY void operator()(Block& block) const {
    const std::int64_t first = block.grid_thread(), step = block.grid_threads();
    for (std::int64_t i = first; i < packs; i += step) some<kPack>(head + i * kPack);
    for (std::int64_t i = first; i < singles; i += step) some<1>(i < head ? i : i + packs * kPack);
  }

 private:
  template <int N>
  CS_BODY void some(std::int64_t at) const {
    const Pack<T, N> own = load_pack<N>(sources[0] + at);
    Sum sum[N];
    CS_UNROLL
    for (int j = 0; j < N; ++j) sum[j] = static_cast<Sum>(own.at[j]);
    switch (reduce) {
      case Reduce::Min: add<Reduce::Min>(at, sum); break;
      case Reduce::Max: add<Reduce::Max>(at, sum); break;
      case Reduce::Product: add<Reduce::Product>(at, sum); break;
      default: add<Reduce::Sum>(at, sum); break;
    }
    Pack<T, N> result;
    CS_UNROLL
    for (int j = 0; j < N; ++j) {
      if (divisor != 1) sum[j] = static_cast<Sum>(sum[j] / static_cast<Sum>(divisor));
      result.at[j] = static_cast<T>(sum[j]);
    }
    store_pack(target + at, result);
  }
  template <Reduce op, int N>
  CS_BODY void add(std::int64_t at, Sum (&sum)[N]) const {
    CS_UNROLL_4
    for (int s = 1; s < source_count; ++s) {
      const Pack<T, N> more = load_pack<N>(sources[s] + at);
      CS_UNROLL
      for (int j = 0; j < N; ++j) sum[j] = combined<op>(sum[j], static_cast<Sum>(more.at[j]));
    }
  }
};

// Splits `count` elements into head, packs and tail; no packs if the address of a source differs
// from the target's modulo 16.
template <class T>
void cut(ReduceKernel<T>& kernel, std::int64_t count) {
  const auto apart = [](const T* at) { return reinterpret_cast<std::uintptr_t>(at) % kPackBytes; };
  const std::size_t own = apart(kernel.target);
  bool alike = own % sizeof(T) == 0;
  for (int s = 0; s < kernel.source_count; ++s) alike = alike && apart(kernel.sources[s]) == own;
  const auto before = static_cast<std::int64_t>((kPackBytes - own) % kPackBytes / sizeof(T));
  kernel.head = alike ? std::min(before, count) : 0;
  kernel.packs = alike ? (count - kernel.head) / kernel.kPack : 0;
  kernel.singles = count - kernel.packs * kernel.kPack;
}

template <class T>
void reduce_typed(CudaDevice& device, Reduce reduce, std::span<const void* const> sources,
                  void* target, std::int64_t count, void* stream) {
  const int all = static_cast<int>(sources.size());
  if (all > kSources)
    fail(ErrorKind::Unsupported, str_cat("a reduction over ", all, " ranks of one process on ",
                                         device.name(), ": at most ", kSources, " are supported"));
  ReduceKernel<T> kernel{};
  kernel.reduce = reduce;
  kernel.target = static_cast<T*>(target);
  for (int s = 0; s < all; ++s)
    kernel.sources[s] = static_cast<const T*>(sources[static_cast<std::size_t>(s)]);
  kernel.source_count = all;
  kernel.divisor = reduce == Reduce::Avg ? all : 1;
  cut(kernel, count);
  const std::int64_t blocks = blocks_for(std::max(kernel.packs, kernel.singles));
  launch(device, "reduce over ranks", kernel, blocks, 256, 0, stream);
}

}  // namespace

void reduce_on_device(CudaDevice& device, DType dtype, Reduce reduce,
                      std::span<const void* const> sources, void* target, std::int64_t count,
                      void* stream) {
  if (count == 0) return;
  switch (dtype) {
    case DType::F32: return reduce_typed<float>(device, reduce, sources, target, count, stream);
    case DType::F64: return reduce_typed<double>(device, reduce, sources, target, count, stream);
    case DType::BF16: return reduce_typed<BFloat16>(device, reduce, sources, target, count, stream);
    case DType::F16: return reduce_typed<Float16>(device, reduce, sources, target, count, stream);
    case DType::I64:
      return reduce_typed<std::int64_t>(device, reduce, sources, target, count, stream);
    case DType::I32:
      return reduce_typed<std::int32_t>(device, reduce, sources, target, count, stream);
    case DType::Bool:
      return reduce_typed<std::uint8_t>(device, reduce, sources, target, count, stream);
    case DType::F8E4M3:
    case DType::F8E5M2: fail_without_arithmetic(dtype);
  }
}

}  // namespace coshard
