#pragma once
// What the tests of the tape share.
#include <functional>
#include <string>
#include <vector>

#include "tests/support/ranks.h"

namespace coshard::testing {

using Values = std::vector<double>;

// What `f` throws as Error{BadInput}; "" when it does not.
inline std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "";
  }
  return "";
}

inline bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// 1, 2, 3, … which require a gradient.
inline Tensor leaf_of(World& world, const Shape& shape) {
  Tensor x = counting(world, shape);
  x.set_requires_grad(true);
  return x;
}

}  // namespace coshard::testing
