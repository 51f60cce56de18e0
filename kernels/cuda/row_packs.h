#pragma once
// Packs of adjacent row elements, widened to the compute type: 16 bytes at once if rows are
// aligned, otherwise one element. Used by the .cu files only.
#include <type_traits>

#include "kernels/cuda/typed.h"
#include "runtime/device/cuda/fragment.h"
#include "runtime/device/cuda/pack.h"

namespace coshard::kernels::cuda {

// The elements of `from`, widened.
template <class T, int W>
CS_BODY void widen_pack(const Pack<T, W>& from, Wide<T> (&to)[W]) {
  CS_UNROLL
  for (int j = 0; j < W; ++j) to[j] = widen(from.at[j]);
}

// Pack `number` of `from`, or `otherwise` if from is null.
template <class T, int W>
CS_BODY void widen_or(const T* from, std::int64_t number, Wide<T> otherwise, Wide<T> (&to)[W]) {
  if (from != nullptr) return widen_pack(load_pack<W>(from + number * W), to);
  CS_UNROLL
  for (int j = 0; j < W; ++j) to[j] = otherwise;
}

// Rounds `from` to T and writes it.
template <class T, int W>
CS_BODY void store_wide(T* to, const Wide<T> (&from)[W]) {
  if constexpr (std::is_same_v<T, BFloat16> && W % 2 == 0) {
    Pack<std::uint32_t, W / 2> pairs;
    CS_UNROLL
    for (int j = 0; j < W; j += 2) pairs.at[j / 2] = pack_bf16(from[j], from[j + 1]);
    store_pack(reinterpret_cast<std::uint32_t*>(to), pairs);
  } else {
    Pack<T, W> pack;
    CS_UNROLL
    for (int j = 0; j < W; ++j) pack.at[j] = static_cast<T>(from[j]);
    store_pack(to, pack);
  }
}

// Whether rows of `extent` elements that begin at each of these (null: absent) can be read 16 bytes
// at once.
template <class T, class... Pointers>
bool in_vectors(std::int64_t extent, const Pointers*... at) {
  return extent % kPackOf<T> == 0 && ((reinterpret_cast<std::uintptr_t>(at) % 16 == 0) && ...);
}

// Calls f(std::integral_constant<int, W>): W elements at once.
template <class T, class F>
void with_width(bool vectors, F&& f) {
  if (vectors) return f(std::integral_constant<int, kPackOf<T>>{});
  f(std::integral_constant<int, 1>{});
}

}  // namespace coshard::kernels::cuda
