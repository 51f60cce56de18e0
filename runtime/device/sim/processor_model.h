#pragma once
// What a kernel costs on a processor, from its arguments alone. Values and pure functions.
#include <cstdint>
#include <string>
#include <string_view>

#include <coshard/runtime/dtype.h>
#include <coshard/runtime/observer.h>

namespace coshard {

// What one kernel has to do.
struct KernelWork {
  std::string_view name;  // "Matmul"; static text
  ComputeClass what = ComputeClass::Other;
  DType dtype = DType::F32;
  double flops = 0;
  double bytes = 0;                             // read and written
  std::int64_t batch = 1, m = 0, n = 0, k = 0;  // of a product
};

// A GPU, or whatever computes. Rates are those that large kernels reach, not peaks.
struct ProcessorModel {
  std::string name;
  double memory = 0;             // bytes
  double memory_rate = 0;        // bytes/s; 0: what is bound by it takes no time
  double product_rate = 0;       // flop/s of bf16 and f16 products
  double wide_product_rate = 0;  // flop/s of f32 and f64 products
  double attention_rate = 0;     // flop/s of attention
  // Tiles of a product are computed a wave at a time, one per multiprocessor; the last wave takes as
  // long as the others. 0: products take their flops over the rate.
  int multiprocessors = 0;
  int tile_m = 128, tile_n = 256;
  std::int64_t kernel_ns = 0;  // what each kernel takes besides

  // Products: waves x the time of a tile, or what its memory takes if that is longer. Fewer tiles
  // than multiprocessors: the sums are split among those that are idle, down to 512 terms each.
  std::int64_t time_ns(const KernelWork& work) const;

 private:
  double product_ns(const KernelWork& work) const;
};

}  // namespace coshard
