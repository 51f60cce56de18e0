#include "runtime/device/sim/processor_model.h"

#include <algorithm>

#include "runtime/device/sim/limits.h"

namespace coshard {
namespace {

constexpr std::int64_t kFewestTerms = 512;  // per part of a split sum

std::int64_t pieces(std::int64_t of, std::int64_t size) { return (of + size - 1) / size; }

}  // namespace

double ProcessorModel::product_ns(const KernelWork& work) const {
  const bool narrow = size_of(work.dtype) <= 2;
  const double rate = narrow ? product_rate : wide_product_rate;
  if (multiprocessors == 0 || work.flops == 0) return work.flops / rate * 1e9;
  const std::int64_t tiles = work.batch * pieces(work.m, tile_m) * pieces(work.n, tile_n);
  const double tile_flops = 2.0 * tile_m * tile_n * static_cast<double>(work.k);
  const double tile_ns = tile_flops / (rate / multiprocessors) * 1e9;
  if (tiles >= multiprocessors)
    return static_cast<double>(pieces(tiles, multiprocessors)) * tile_ns;
  const std::int64_t split = std::clamp<std::int64_t>(
      multiprocessors / tiles, 1, std::max<std::int64_t>(1, work.k / kFewestTerms));
  return tile_ns / static_cast<double>(split);
}

std::int64_t ProcessorModel::time_ns(const KernelWork& work) const {
  double ns = 0;
  switch (work.what) {
    case ComputeClass::Gemm: ns = product_ns(work); break;
    case ComputeClass::Attention: ns = work.flops / attention_rate * 1e9; break;
    case ComputeClass::Other: break;
  }
  if (memory_rate > 0) ns = std::max(ns, work.bytes / memory_rate * 1e9);
  return kernel_ns + counted_ns(ns);
}

}  // namespace coshard
