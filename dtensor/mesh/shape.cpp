#include <coshard/dtensor/mesh/shape.h>

namespace coshard {

std::int64_t numel(const Shape& shape) {
  std::int64_t count = 1;
  for (auto size : shape) count *= size;
  return count;
}

void require_size(const Shape& shape, std::size_t element_bytes, const char* what) {
  auto bytes = static_cast<std::int64_t>(element_bytes);
  for (auto size : shape) {
    CS_REQUIRE(size >= 0, what, ": negative size ", size, " in shape ", shape);
    CS_REQUIRE(!__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes), what,
               ": shape ", shape, " has 2^63 bytes or more");
  }
}

Strides row_major(const Shape& shape) {
  Strides strides = Strides::filled(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

int normalize_dim(std::int64_t dim, int ndim, const char* what) {
  CS_REQUIRE(dim >= -ndim && dim < ndim, what, ": dimension ", dim,
             " is out of range for a tensor with ", ndim, " dimensions");
  return static_cast<int>(dim < 0 ? dim + ndim : dim);
}

int normalize_dim_or_zero(std::int64_t dim, int ndim, const char* what) {
  return ndim == 0 && (dim == 0 || dim == -1) ? 0 : normalize_dim(dim, ndim, what);
}

Shape broadcast(const Shape& a, const Shape& b, const char* what) {
  const std::size_t n = std::max(a.size(), b.size());
  Shape out = Shape::filled(n, 1);
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    CS_REQUIRE(x == y || x == 1 || y == 1, what, ": shapes ", a, " and ", b, " do not broadcast");
    out[n - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

// Sizes are not printed by `out`, whose locale may group their digits.
template <std::same_as<Shape> S>
std::ostream& operator<<(std::ostream& out, const S& shape) {
  out << '[';
  for (std::size_t i = 0; i < shape.size(); ++i) out << (i ? "," : "") << std::to_string(shape[i]);
  return out << ']';
}
template __attribute__((visibility("default"))) std::ostream& operator<<(std::ostream& out,
                                                                         const Shape& shape);

}  // namespace coshard
