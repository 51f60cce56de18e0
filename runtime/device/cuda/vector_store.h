#pragma once
// Stores of 8 and 16 bytes by one instruction. In inline PTX, because a compiler that sees
// element-wise stores in another branch splits a struct's assignment and loses its alignment.
#include <cstdint>
#include <cstring>

#include "runtime/device/cuda/block.h"

namespace coshard {

// `to`: device memory, aligned to the size of the store.
CS_BODY void store_words(void* to, const std::uint32_t (&words)[2]) {
  check_aligned(to, sizeof words);
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .u64 at; cvta.to.global.u64 at, %0; st.global.v2.b32 [at], {%1, %2}; }" ::"l"(to),
      "r"(words[0]), "r"(words[1])
      : "memory");
#else
  std::memcpy(to, words, sizeof words);
#endif
}
CS_BODY void store_words(void* to, const std::uint32_t (&words)[4]) {
  check_aligned(to, sizeof words);
#if defined(__CUDA_ARCH__)
  asm volatile(
      "{ .reg .u64 at; cvta.to.global.u64 at, %0; st.global.v4.b32 [at], {%1, %2, %3, %4}; }" ::"l"(
          to),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
      : "memory");
#else
  std::memcpy(to, words, sizeof words);
#endif
}

}  // namespace coshard
