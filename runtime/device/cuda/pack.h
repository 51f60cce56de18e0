#pragma once
// Vectorized loads and stores of several elements: up to 16 bytes per instruction, at an address
// aligned to the access size. Used by the .cu files only.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/device/cuda/vector_store.h"

#if defined(__CUDACC__)
#define CS_UNROLL_4 _Pragma("unroll 4")  // so that the loads of four iterations overlap
#else
#define CS_UNROLL_4
#endif

namespace coshard {

constexpr int kPackBytes = 16;

// N * sizeof(T) is a power of two; above 16 bytes a pack moves 16 at a time.
template <class T, int N>
struct alignas(N * sizeof(T) < kPackBytes ? N * sizeof(T) : kPackBytes) Pack {
  T at[N];
};

// How many T fill 16 bytes.
template <class T>
constexpr int kPackOf = kPackBytes / static_cast<int>(sizeof(T));

template <int N, class T>
CS_BODY Pack<T, N> load_pack(const T* from) {
  check_aligned(from, alignof(Pack<T, N>));
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
CS_BODY void store_pack(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof pack < 8) {
    check_aligned(to, alignof(Pack<T, N>));
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  } else {
    constexpr int kWords = sizeof pack == 8 ? 2 : 4;
    struct Words {
      std::uint32_t at[sizeof pack / (4 * kWords)][kWords];
    };
    const auto words = std::bit_cast<Words>(pack);
    CS_UNROLL
    for (std::size_t i = 0; i < sizeof pack / (4 * kWords); ++i)
      store_words(reinterpret_cast<std::byte*>(to) + i * 4 * kWords, words.at[i]);
  }
}

}  // namespace coshard
