#pragma once
// Division of element indices by a size that is fixed for a launch, without the ~100 instructions
// of a 64-bit division.
#include <cstdint>

#include "runtime/device/cuda/block.h"

namespace coshard::kernels::cuda {

// n / divisor for 0 <= n < 2^31 as a multiplication and a shift (Granlund & Montgomery, 1994).
struct Divider {
  std::uint32_t magic = 1;
  std::uint32_t shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t divisor) {  // 1 to 2^31
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    const std::uint64_t power = std::uint64_t{1} << shift;
    magic = static_cast<std::uint32_t>(((power - divisor) << 32) / divisor + 1);
  }
  CS_HOST_BODY std::uint32_t divide(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{n} * magic) >> 32);
    return (high + n) >> shift;
  }
};

}  // namespace coshard::kernels::cuda
