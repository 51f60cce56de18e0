#pragma once
// Shared by the functions of one and of two elements.
#include <cstdint>

#if defined(__CUDACC__)
#define CS_ELEMENT __device__ __forceinline__
#else
#define CS_ELEMENT [[gnu::always_inline]] inline
#endif

namespace coshard::kernels::elementwise {

// Whether F supports integers: has `of_integer` with this many arguments.
template <class F, class... Integers>
concept TakesIntegersOf = requires(Integers... x) {
  F::of_integer(x...);
};

}  // namespace coshard::kernels::elementwise
