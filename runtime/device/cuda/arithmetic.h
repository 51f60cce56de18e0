#pragma once
// Arithmetic of kernel bodies that compilers must not rearrange.
#include "runtime/device/cuda/block.h"

namespace coshard {

// a * b + c with the product rounded before the sum, as a host without fused instructions does.
CS_HOST_BODY double multiply_then_add(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(__dmul_rn(a, b), c);
#else
  const volatile double product = a * b;
  return product + c;
#endif
}

}  // namespace coshard
