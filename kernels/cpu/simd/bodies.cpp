#include "kernels/cpu/simd/bodies.h"

#include "kernels/cpu/simd/kernels.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

Bodies bodies() {
  Bodies table{};
#define X(Kernel) table.body_of_##Kernel = run;
#if defined(COSHARD_F64)
  COSHARD_SIMD_F64_KERNELS(X)
#else
  COSHARD_SIMD_KERNELS(X)
#endif
#undef X
  return table;
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
