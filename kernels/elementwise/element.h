#pragma once
// What functions of one and of two elements share.
#include <cstdint>

#if defined(__CUDACC__)
#define CS_ELEMENT __device__ __forceinline__
#else
#define CS_ELEMENT [[gnu::always_inline]] inline
#endif

namespace coshard::kernels::elementwise {

// Whether it has a value over integers, `of_integer`, of this many arguments.
template <class F, class... Integers>
concept TakesIntegersOf = requires(Integers... x) {
  F::of_integer(x...);
};

}  // namespace coshard::kernels::elementwise
