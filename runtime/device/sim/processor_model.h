#pragma once
// The cost of a kernel on a processor, from the kernel's arguments alone. Values and pure
// functions.
#include <cstdint>
#include <string>
#include <string_view>

#include <coshard/runtime/dtype.h>
#include <coshard/runtime/observer.h>

namespace coshard {

// The work of one kernel.
struct KernelWork {
  std::string_view name;  // "Matmul"; static text
  ComputeClass what = ComputeClass::Other;
  DType dtype = DType::F32;
  double flops = 0;
  double bytes = 0;                             // read and written
  std::int64_t batch = 1, m = 0, n = 0, k = 0;  // of a GEMM
};

// A GPU or other processor. Rates are those that large kernels reach, not peaks.
struct ProcessorModel {
  std::string name;
  double memory = 0;             // bytes
  double memory_rate = 0;        // bytes/s; 0: memory traffic takes no time
  double product_rate = 0;       // flop/s of bf16 and f16 GEMMs
  double wide_product_rate = 0;  // flop/s of f32 and f64 GEMMs
  double attention_rate = 0;     // flop/s of attention
  // Tiles of a GEMM are computed in waves, one tile per multiprocessor; the last wave takes as long
  // as the others. 0: a GEMM takes its flops over the rate.
  int multiprocessors = 0;
  int tile_m = 128, tile_n = 256;
  std::int64_t kernel_ns = 0;  // added to each kernel

  // GEMMs: waves x the time of a tile, or the time of the memory traffic if that is longer. With
  // fewer tiles than multiprocessors, k is split among the idle ones, down to 512 terms each
  // (split-K).
  std::int64_t time_ns(const KernelWork& work) const;

 private:
  double product_ns(const KernelWork& work) const;
};

}  // namespace coshard
