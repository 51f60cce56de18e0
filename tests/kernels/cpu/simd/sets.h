#pragma once
// The sets of vectorised bodies that this machine can run, each with its name.
#include <string>
#include <vector>

#include "kernels/cpu/simd/bodies.h"

namespace coshard::kernels::testing {

struct SimdSet {
  std::string name;
  cpu::Bodies narrow, f64;

  const cpu::Bodies& of(DType dtype) const { return dtype == DType::F64 ? f64 : narrow; }
};

inline std::vector<SimdSet> sets_here() {
  std::vector<SimdSet> all{{"baseline", cpu::baseline::bodies(), cpu::baseline_f64::bodies()}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    all.push_back({"v3", cpu::v3::bodies(), cpu::v3_f64::bodies()});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    all.push_back({"v4", cpu::v4::bodies(), cpu::v4_f64::bodies()});
#endif
  return all;
}

inline const std::vector<SimdSet> kSets = sets_here();

}  // namespace coshard::kernels::testing
