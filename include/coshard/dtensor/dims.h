#pragma once
// The dimensions that a reduction works over: all of them (nothing given, or an empty list), one,
// or several. Negative ones count from the end. A value.
#include <optional>

#include <coshard/dtensor/shape.h>

namespace coshard {

class Dims {
 public:
  Dims() = default;
  Dims(std::nullopt_t) {}  // NOLINT: as an argument
  template <std::integral... Dim>
  requires(sizeof...(Dim) > 0) Dims(Dim... dims) : dims_{dims...} {}  // NOLINT: 1 or {0, 1}
  Dims(const Shape& dims) : dims_(dims) {}                            // NOLINT
  // Bit i: dimension i of `ndim`. Error{BadInput} for one that is not there or given twice.
  std::int64_t mask(int ndim, const char* op) const;

 private:
  Shape dims_;
};

}  // namespace coshard
