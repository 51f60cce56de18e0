#pragma once
// The dimensions to reduce over: all of them (no argument, or an empty list), one, or several.
// Negative ones count from the end. A value.
#include <optional>

#include <coshard/dtensor/mesh/shape.h>

#pragma GCC visibility push(default)
namespace coshard {

class Dims {
 public:
  Dims() = default;
  Dims(std::nullopt_t) {}  // NOLINT: as an argument
  template <std::integral... Dim>
  requires(sizeof...(Dim) > 0) Dims(Dim... dims) : dims_{dims...} {}  // NOLINT: 1 or {0, 1}
  Dims(const Shape& dims) : dims_(dims) {}                            // NOLINT
  // Bit i: dimension i of `ndim`. Error{BadInput} for a dimension out of range or given twice.
  std::int64_t mask(int ndim, const char* op) const;

 private:
  Shape dims_;
};

}  // namespace coshard
#pragma GCC visibility pop
