#pragma once
// Elementary functions of a register of floats, for the elementwise functions.
#include "kernels/cpu/simd/math.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

struct VectorMath {
  COSHARD_INLINE Vec operator()(double constant) const { return all(static_cast<Real>(constant)); }
  COSHARD_INLINE Vec select(IVec mask, Vec yes, Vec no) const {
    return COSHARD_ISA::select(mask, yes, no);
  }
  COSHARD_INLINE Vec maximum(Vec a, Vec b) const { return COSHARD_ISA::maximum(a, b); }
  COSHARD_INLINE Vec minimum(Vec a, Vec b) const { return COSHARD_ISA::minimum(a, b); }
  COSHARD_INLINE Vec abs(Vec x) const { return absolute(x); }
  COSHARD_INLINE Vec sqrt(Vec x) const { return square_root(x); }
  COSHARD_INLINE Vec exp(Vec x) const { return exponential(x); }
  COSHARD_INLINE Vec log(Vec x) const { return logarithm(x); }
  COSHARD_INLINE Vec tanh(Vec x) const { return hyperbolic_tangent(x); }
  COSHARD_INLINE Vec erf(Vec x) const { return error_function(x); }
};

}  // namespace coshard::kernels::cpu::COSHARD_ISA
