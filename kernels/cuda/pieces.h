#pragma once
// Whether a kernel may read a view in vectors of several elements. Used by the .cu files only.
#include <cstdint>

#include "kernels/args/view.h"

namespace coshard::kernels::cuda {

// Whether each row of `v` [a, b, c, columns] is dense and aligned to the size of `piece` elements,
// a power of 2. The kernel must check the number of columns itself.
inline bool rows_in_pieces(const View& v, int piece) {
  const auto bytes = static_cast<std::uintptr_t>(piece) * size_of(v.dtype);
  bool fits = reinterpret_cast<std::uintptr_t>(v.data) % bytes == 0;
  for (std::size_t d = 0; d < 3; ++d) fits = fits && (v.shape[d] <= 1 || v.strides[d] % piece == 0);
  return fits && (v.shape[3] <= 1 || v.strides[3] == 1);
}

}  // namespace coshard::kernels::cuda
