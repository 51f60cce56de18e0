#pragma once
// Arithmetic in kernel bodies that compilers must not contract or reorder.
#include "runtime/device/cuda/block.h"

namespace coshard {

// a * b + c with the product rounded before the sum, as on a host without fused multiply-add.
CS_HOST_BODY double multiply_then_add(double a, double b, double c) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(__dmul_rn(a, b), c);
#else
  const volatile double product = a * b;
  return product + c;
#endif
}

}  // namespace coshard
