#include "runtime/device/sim/processor_model.h"

#include <gtest/gtest.h>

#include "runtime/device/sim/limits.h"

namespace coshard {
namespace {

KernelWork product(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype = DType::BF16) {
  KernelWork work;
  work.what = ComputeClass::Gemm;
  work.dtype = dtype;
  work.m = m, work.n = n, work.k = k;
  work.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return work;
}

ProcessorModel gpu() {
  ProcessorModel model;
  model.product_rate = 132e12;  // 1 Tflop/s per multiprocessor
  model.wide_product_rate = 13.2e12;
  model.attention_rate = 50e12;
  model.multiprocessors = 132;
  return model;
}

// A tile of 128 x 256 x 4096: 268,435,456 flops, 268,435 ns.
constexpr std::int64_t kTileNs = 268'435;

TEST(ProcessorModel, AProductTakesWholeWaves) {
  EXPECT_EQ(gpu().time_ns(product(8192, 1280, 4096)), 3 * kTileNs + 1);  // 320 tiles, 2.4 waves
  EXPECT_EQ(gpu().time_ns(product(132 * 128, 256, 4096)), kTileNs);
  EXPECT_EQ(gpu().time_ns(product(132 * 128 + 1, 256, 4096)), 2 * kTileNs + 1);
}

TEST(ProcessorModel, WithoutMultiprocessorsAProductTakesItsFlops) {
  ProcessorModel model = gpu();
  model.multiprocessors = 0;
  EXPECT_EQ(model.time_ns(product(132, 1000, 500)), 1000);
  EXPECT_EQ(model.time_ns(product(132, 1000, 500, DType::F32)), 10'000);
}

TEST(ProcessorModel, FewTilesSplitTheirSumsAmongIdleMultiprocessors) {
  EXPECT_EQ(gpu().time_ns(product(128, 256, 4096)), kTileNs / 8);           // pieces of 512 terms
  EXPECT_EQ(gpu().time_ns(product(66 * 128, 256, 4096)), kTileNs / 2 + 1);  // two for each tile
}

TEST(ProcessorModel, MemoryBoundsWhatIsBoundByIt) {
  ProcessorModel model = gpu();
  KernelWork copy;
  copy.bytes = 6'000'000;
  EXPECT_EQ(model.time_ns(copy), 0);
  model.memory_rate = 3e12;
  model.kernel_ns = 5;
  EXPECT_EQ(model.time_ns(copy), 2005);
  KernelWork thin = product(1, 1, 1);
  thin.bytes = 3'000'000'000;
  EXPECT_EQ(model.time_ns(thin), 1'000'005);
}

TEST(ProcessorModel, AttentionHasARateOfItsOwn) {
  KernelWork work;
  work.what = ComputeClass::Attention;
  work.flops = 50e9;
  EXPECT_EQ(gpu().time_ns(work), 1'000'000);
}

TEST(ProcessorModel, ATimeThatNoIntegerHoldsIsCut) {
  ProcessorModel model = gpu();
  model.product_rate = model.memory_rate = 1e-300;
  model.kernel_ns = 5;
  EXPECT_EQ(model.time_ns(product(8192, 1280, 4096)), kLongestNs + 5);
  KernelWork copy;
  copy.bytes = 1e300;
  EXPECT_EQ(model.time_ns(copy), kLongestNs + 5);
}

}  // namespace
}  // namespace coshard
