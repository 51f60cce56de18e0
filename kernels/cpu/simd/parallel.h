#pragma once
// Splits a range over the OpenMP threads the caller may use. Only included by the sources of this
// directory.
#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/args.h"

namespace coshard::kernels::cpu::COSHARD_ISA {

// Calls f(begin, end) once for each piece of [0, n), of a length that is a multiple of `grain`
// except for the last; a single call if n is at most one grain or the caller has one thread. The
// result of f must not depend on the split.
template <class F>
inline void parallel(std::int64_t n, std::int64_t grain, const F& f) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
#ifdef _OPENMP
  const std::int64_t grains = (n + grain - 1) / grain;
  if (grains > 1 && omp_get_max_threads() > 1) {
#pragma omp parallel
    {
      const std::int64_t threads = omp_get_num_threads();
      const std::int64_t begin = grains * omp_get_thread_num() / threads * grain;
      const std::int64_t end = grains * (omp_get_thread_num() + 1) / threads * grain;
      if (begin < n && begin < end) f(begin, end < n ? end : n);
    }
    return;
  }
#endif
  f(0, n);
}

inline std::int64_t thread_count() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

// Elements of a cheap loop that are worth a thread.
constexpr std::int64_t kGrain = 1 << 15;

// Rows of `dim` elements that are worth a thread.
inline std::int64_t row_grain(std::int64_t dim) {
  return dim >= kGrain ? 1 : kGrain / (dim + 1) + 1;
}

// Calls f(T{}) with the stored type: double in the sets for f64, else float, BFloat16 or Float16.
// Other dtypes never get here, they use the reference loops.
template <class F>
inline void with_stored(DType dtype, F&& f) {
#if defined(COSHARD_F64)
  f(double{});
#else
  if (dtype == DType::BF16) return f(BFloat16{});
  if (dtype == DType::F16) return f(Float16{});
  f(float{});
#endif
}

template <class T>
inline T* as(void* data) {
  return static_cast<T*>(data);
}
template <class T>
inline const T* as(const void* data) {
  return static_cast<const T*>(data);
}

}  // namespace coshard::kernels::cpu::COSHARD_ISA
