#include "runtime/comm/local/reduce.h"

#include <algorithm>
#include <cstring>

namespace coshard {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements whose accumulator stays in L1

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};

template <Reduce op, class A>
A combine(A a, A b) {
  if constexpr (op == Reduce::Min) return b < a ? b : a;
  if constexpr (op == Reduce::Max) return a < b ? b : a;
  if constexpr (op == Reduce::Product) return a * b;
  return a + b;
}

template <class T, Reduce op>
void reduce_blocks(std::span<const void* const> sources, std::span<void* const> targets,
                   std::int64_t count) {
  using A = typename Accumulator<T>::type;
  alignas(64) A sum[kBlock];
  alignas(64) T result[kBlock];
  const A divisor = static_cast<A>(sources.size());
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    if (sources.size() == 1) {
      for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
    } else {
      const T* second = static_cast<const T*>(sources[1]) + begin;
      for (std::int64_t i = 0; i < n; ++i)
        sum[i] = combine<op>(static_cast<A>(first[i]), static_cast<A>(second[i]));
    }
    for (std::size_t s = 2; s < sources.size(); ++s) {
      const T* next = static_cast<const T*>(sources[s]) + begin;
      for (std::int64_t i = 0; i < n; ++i) sum[i] = combine<op>(sum[i], static_cast<A>(next[i]));
    }
    if constexpr (op == Reduce::Avg) {
      for (std::int64_t i = 0; i < n; ++i) sum[i] = sum[i] / divisor;
    }
    const void* finished = sum;
    if constexpr (!std::is_same_v<T, A>) {
      for (std::int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(sum[i]);
      finished = result;
    }
    for (void* target : targets)
      std::memcpy(static_cast<T*>(target) + begin, finished,
                  static_cast<std::size_t>(n) * sizeof(T));
  }
}

template <class T>
void reduce_type(Reduce reduce, std::span<const void* const> sources,
                 std::span<void* const> targets, std::int64_t count) {
  switch (reduce) {
    case Reduce::Sum: return reduce_blocks<T, Reduce::Sum>(sources, targets, count);
    case Reduce::Avg: return reduce_blocks<T, Reduce::Avg>(sources, targets, count);
    case Reduce::Min: return reduce_blocks<T, Reduce::Min>(sources, targets, count);
    case Reduce::Max: return reduce_blocks<T, Reduce::Max>(sources, targets, count);
    case Reduce::Product: return reduce_blocks<T, Reduce::Product>(sources, targets, count);
  }
}

}  // namespace

void reduce_into(DType dtype, Reduce reduce, std::span<const void* const> sources,
                 std::span<void* const> targets, std::int64_t count) {
  switch (dtype) {
    case DType::F32: return reduce_type<float>(reduce, sources, targets, count);
    case DType::F64: return reduce_type<double>(reduce, sources, targets, count);
    case DType::BF16: return reduce_type<BFloat16>(reduce, sources, targets, count);
    case DType::I64: return reduce_type<std::int64_t>(reduce, sources, targets, count);
    case DType::I32: return reduce_type<std::int32_t>(reduce, sources, targets, count);
    case DType::Bool: return reduce_type<std::uint8_t>(reduce, sources, targets, count);
  }
}

}  // namespace coshard
