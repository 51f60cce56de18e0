#include <coshard/dtensor/tensor/dims.h>

#include <coshard/runtime/error.h>

namespace coshard {

std::int64_t Dims::mask(int ndim, const char* op) const {
  if (dims_.empty()) return (std::int64_t{1} << ndim) - 1;
  std::int64_t mask = 0;
  for (const std::int64_t dim : dims_) {
    if (ndim == 0 && (dim == 0 || dim == -1)) continue;  // valid for a scalar tensor
    const std::int64_t bit = std::int64_t{1} << normalize_dim(dim, ndim, op);
    CS_REQUIRE((mask & bit) == 0, op, ": dimension ", dim, " is given twice");
    mask |= bit;
  }
  return mask;
}

}  // namespace coshard
