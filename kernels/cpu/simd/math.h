#pragma once
// Elementary functions of one register, branch-free, within about 2 ulp; infinities, zeros,
// denormals and NaN behave as in <cmath>.
#if defined(COSHARD_F64)
#include "kernels/cpu/simd/math_f64.h"
#else
#include "kernels/cpu/simd/math_f32.h"
#endif
