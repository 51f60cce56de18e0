#include "kernels/cpu/simd/bodies.h"

#include "kernels/cpu/simd/kernels.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

Bodies bodies() {
  Bodies table{};
#define X(Kernel) table.body_of_##Kernel = run;
  COSHARD_SIMD_KERNELS(X)
#undef X
  return table;
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
