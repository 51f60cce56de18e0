#include "runtime/comm/local/host/reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace coshard {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements whose accumulator stays in L1

// How an element is stored and how it is accumulated. Branch-free, for the vectorizer.
template <class T>
struct Element {
  using Stored = T;
  using Sum = T;
  static Sum load(Stored value) { return value; }
  static Stored store(Sum sum) { return sum; }
};
template <>
struct Element<BFloat16> {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum load(Stored bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  static Stored store(Sum sum) {
    const auto bits = std::bit_cast<std::uint32_t>(sum);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    return static_cast<Stored>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
  }
};
template <>
struct Element<Float16> {
  using Stored = std::uint16_t;
  using Sum = float;
  static Sum load(Stored bits) { return std::bit_cast<Float16>(bits); }
  static Stored store(Sum sum) { return Float16(sum).bits; }
};

// NaN propagates from any rank.
template <Reduce op, class A>
inline A combine(A a, A b) {
  if constexpr (op == Reduce::Min) return b < a || b != b ? b : a;
  if constexpr (op == Reduce::Max) return a < b || b != b ? b : a;
  if constexpr (std::is_integral_v<A>) {  // wraps, as on every other back end
    using U = std::make_unsigned_t<A>;
    if constexpr (op == Reduce::Product)
      return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
    return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    if constexpr (op == Reduce::Product) return a * b;
    return a + b;
  }
}

template <class T, Reduce op>
[[gnu::always_inline]] inline void reduce_blocks(std::span<const void* const> sources,
                                                 std::span<void* const> targets,
                                                 std::int64_t count) {
  using E = Element<T>;
  using S = typename E::Stored;
  using A = typename E::Sum;
  alignas(64) A sum[kBlock];
  alignas(64) S result[kBlock];
  const A divisor = static_cast<A>(sources.size());
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const S* first = static_cast<const S*>(sources[0]) + begin;
    if (sources.size() == 1) {
      for (std::int64_t i = 0; i < n; ++i) sum[i] = E::load(first[i]);
    } else {
      const S* second = static_cast<const S*>(sources[1]) + begin;
      for (std::int64_t i = 0; i < n; ++i)
        sum[i] = combine<op>(E::load(first[i]), E::load(second[i]));
    }
    for (std::size_t s = 2; s < sources.size(); ++s) {
      const S* next = static_cast<const S*>(sources[s]) + begin;
      for (std::int64_t i = 0; i < n; ++i) sum[i] = combine<op>(sum[i], E::load(next[i]));
    }
    if constexpr (op == Reduce::Avg) {
      for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(sum[i] / divisor);
    }
    const void* finished = sum;
    if constexpr (!std::is_same_v<S, A>) {
      for (std::int64_t i = 0; i < n; ++i) result[i] = E::store(sum[i]);
      finished = result;
    }
    for (void* target : targets)
      std::memcpy(static_cast<S*>(target) + begin, finished,
                  static_cast<std::size_t>(n) * sizeof(S));
  }
}

using Loop = void (*)(std::span<const void* const>, std::span<void* const>, std::int64_t);

template <class T, Reduce op>
void plain_loop(std::span<const void* const> sources, std::span<void* const> targets,
                std::int64_t count) {
  reduce_blocks<T, op>(sources, targets, count);
}

#if defined(__x86_64__)
// Without FMA, so that results are bitwise those of plain_loop.
template <class T, Reduce op>
[[gnu::target("avx2")]] void avx2_loop(std::span<const void* const> sources,
                                       std::span<void* const> targets, std::int64_t count) {
  reduce_blocks<T, op>(sources, targets, count);
}
#endif

template <class T, Reduce op>
Loop loop_for() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return avx2_loop<T, op>;
#endif
  return plain_loop<T, op>;
}

template <class T>
Loop loop_for(Reduce reduce) {
  switch (reduce) {
    case Reduce::Sum: return loop_for<T, Reduce::Sum>();
    case Reduce::Avg: return loop_for<T, Reduce::Avg>();
    case Reduce::Min: return loop_for<T, Reduce::Min>();
    case Reduce::Max: return loop_for<T, Reduce::Max>();
    case Reduce::Product: break;
  }
  return loop_for<T, Reduce::Product>();
}

Loop loop_for(DType dtype, Reduce reduce) {
  switch (dtype) {
    case DType::F32: return loop_for<float>(reduce);
    case DType::F64: return loop_for<double>(reduce);
    case DType::BF16: return loop_for<BFloat16>(reduce);
    case DType::F16: return loop_for<Float16>(reduce);
    case DType::I64: return loop_for<std::int64_t>(reduce);
    case DType::I32: return loop_for<std::int32_t>(reduce);
    case DType::Bool:
    case DType::F8E4M3:  // refused when it is issued
    case DType::F8E5M2: break;
  }
  return loop_for<std::uint8_t>(reduce);
}

}  // namespace

void reduce_into(DType dtype, Reduce reduce, std::span<const void* const> sources,
                 std::span<void* const> targets, std::int64_t count) {
  loop_for(dtype, reduce)(sources, targets, count);
}

}  // namespace coshard
