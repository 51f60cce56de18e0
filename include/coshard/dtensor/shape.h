#pragma once
// Shapes and strides of tensors: at most 8 dimensions, counted in elements. Values.
#include <concepts>
#include <cstdint>
#include <ostream>

#include <coshard/dtensor/inline_vector.h>

namespace coshard {

using Shape = InlineVector<std::int64_t, 8>;
using Strides = InlineVector<std::int64_t, 8>;

std::int64_t numel(const Shape& shape);
// Error{BadInput}: a negative size, or 2^63 elements or bytes and more at so many bytes an element.
void require_size(const Shape& shape, std::size_t element_bytes, const char* what);
Strides row_major(const Shape& shape);
// Brings dim (which may be negative) into [0, ndim); Error{BadInput} names `what`, dim and ndim.
int normalize_dim(std::int64_t dim, int ndim, const char* what);
// The same, but that a tensor without dimensions takes 0 and -1 too (as PyTorch), as 0.
int normalize_dim_or_zero(std::int64_t dim, int ndim, const char* what);
// The shape that two shapes broadcast to (right-aligned, 1 stretches). Error{BadInput} names both.
Shape broadcast(const Shape& a, const Shape& b, const char* what);
// [8,512]. Not of what only converts to a shape, which a number does.
template <std::same_as<Shape> S>
std::ostream& operator<<(std::ostream& out, const S& shape);

}  // namespace coshard
