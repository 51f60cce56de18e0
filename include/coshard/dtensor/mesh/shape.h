#pragma once
// Shapes and strides of tensors: at most 8 dimensions, in elements. Values.
#include <concepts>
#include <cstdint>
#include <ostream>

#include <coshard/dtensor/mesh/inline_vector.h>

#pragma GCC visibility push(default)
namespace coshard {

using Shape = InlineVector<std::int64_t, 8>;
using Strides = InlineVector<std::int64_t, 8>;

std::int64_t numel(const Shape& shape);
// Error{BadInput}: a negative size; 2^63 or more elements or bytes, at this many bytes per element.
void require_size(const Shape& shape, std::size_t element_bytes, const char* what);
Strides row_major(const Shape& shape);
// Maps dim, which may be negative, into [0, ndim). Error{BadInput} names `what`, dim and ndim.
int normalize_dim(std::int64_t dim, int ndim, const char* what);
// The same, but a tensor without dimensions accepts 0 and -1, as 0 (as in PyTorch).
int normalize_dim_or_zero(std::int64_t dim, int ndim, const char* what);
// The shape that two shapes broadcast to, right-aligned. Error{BadInput} names both.
Shape broadcast(const Shape& a, const Shape& b, const char* what);
// [8,512]. Exact type only: a number would convert to a shape.
template <std::same_as<Shape> S>
std::ostream& operator<<(std::ostream& out, const S& shape);

}  // namespace coshard
#pragma GCC visibility pop
