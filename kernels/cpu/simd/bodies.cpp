#include "kernels/cpu/simd/bodies.h"

#include "kernels/cpu/simd/kernels.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

Bodies bodies() {
  return {{run}, {run}, {run}, {run}, {run}, {run}, {run}, {run}, {run},
          {run}, {run}, {run}, {run}, {run}, {run}, {run}, {run}, {run},
          {run}, {run}, {run}, {run}, {run}, {run}, {run}, {run}};
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
