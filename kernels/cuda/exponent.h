#pragma once
// e^x for results that will be rounded to T. Used by the .cu files only.
#include <cmath>

#include "kernels/cuda/typed.h"
#include "runtime/device/cuda/fragment.h"

namespace coshard::kernels::cuda {

template <class T>
CS_BODY Wide<T> exponent(Wide<T> x) {
  if constexpr (is_short_float<T>) {
    return quick_exp2(x * 1.44269504F);  // log2(e)
  } else {
    return std::exp(x);
  }
}

}  // namespace coshard::kernels::cuda
