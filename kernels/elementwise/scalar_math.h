#pragma once
// Elementary functions of double or float, for elementwise functions in the reference loops and on
// GPUs.
#include <cmath>

#include "kernels/elementwise/unary.h"

namespace coshard::kernels::elementwise {

template <class V>
struct ScalarMath {
  CS_ELEMENT V operator()(double constant) const { return static_cast<V>(constant); }
  CS_ELEMENT V select(bool condition, V yes, V no) const { return condition ? yes : no; }
  // NaN propagates.
  CS_ELEMENT V maximum(V a, V b) const { return a != a || a > b ? a : b; }
  CS_ELEMENT V minimum(V a, V b) const { return a != a || a < b ? a : b; }
  CS_ELEMENT V abs(V x) const { return std::fabs(x); }
  CS_ELEMENT V floor(V x) const { return std::floor(x); }
  CS_ELEMENT V sqrt(V x) const { return std::sqrt(x); }
  CS_ELEMENT V pow(V x, V y) const { return std::pow(x, y); }
  CS_ELEMENT V fmod(V x, V y) const { return std::fmod(x, y); }
  CS_ELEMENT V atan2(V y, V x) const { return std::atan2(y, x); }
  CS_ELEMENT V exp(V x) const { return std::exp(x); }
  CS_ELEMENT V expm1(V x) const { return std::expm1(x); }
  CS_ELEMENT V log(V x) const { return std::log(x); }
  CS_ELEMENT V log1p(V x) const { return std::log1p(x); }
  CS_ELEMENT V sin(V x) const { return std::sin(x); }
  CS_ELEMENT V cos(V x) const { return std::cos(x); }
  CS_ELEMENT V tanh(V x) const { return std::tanh(x); }
  CS_ELEMENT V erf(V x) const { return std::erf(x); }
};

}  // namespace coshard::kernels::elementwise
