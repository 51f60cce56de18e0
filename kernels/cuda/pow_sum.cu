// The sum of powers of a norm, or the largest absolute value, of one dense array. Two launches: a
// sum per block, then the sum of those in a fixed order, so that results are deterministic.
#include <cmath>

#include "kernels/cuda/elements.h"

namespace coshard::kernels::cuda {
namespace {

constexpr int kPowSumThreads = 256;
constexpr std::int64_t kPowSumBlocks = 1024;  // for every device, so that the order is the same

CS_BODY double pow_sum_combine(bool largest, double a, double b) {
  if (!largest) return a + b;
  return a != a || a > b ? a : b;
}

// The sum (or largest) of all threads' values, in thread 0.
CS_BODY double pow_sum_of_block(Block& block, bool largest, double value) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2)
    value = pow_sum_combine(largest, value, block.shuffle_xor(value, apart));
  auto* warps = block.shared<double>();
  if (block.lane() == 0) warps[block.warp()] = value;
  block.barrier();
  if (block.thread() == 0)
    for (int w = 1; w < block.threads() / kWarp; ++w)
      value = pow_sum_combine(largest, value, warps[w]);
  return value;
}

template <class T>
struct PowSumKernel : KernelTraits<kPowSumThreads, true> {
  static constexpr int kDeep = 2;
  Elements<1> all;
  double p;
  const T* x;
  double* sums;  // one per block
  CS_BODY void operator()(Block& block) const {
    double sum = 0;
    each_pack<kPackOf<T>, kDeep>(block, all, [&](const auto& places) {
      const auto tile = places.load(0, x);
      CS_UNROLL
      for (int k = 0; k < kDeep; ++k) CS_UNROLL
      for (int e = 0; e < kPackOf<T>; ++e) {
        const double size = std::fabs(static_cast<double>(widen(tile.at[k * kPackOf<T> + e])));
        if (places.has(k, e)) sum = pow_sum_combine(p == 0, sum, power(size));
      }
    });
    sum = pow_sum_of_block(block, p == 0, sum);
    if (block.thread() == 0) sums[block.index()] = sum;
  }
  CS_BODY double power(double size) const {
    if (p == 2) return size * size;
    return p == 0 || p == 1 ? size : std::pow(size, p);
  }
};

struct PowSumEndKernel : KernelTraits<kPowSumThreads, true> {
  bool largest;
  int count;
  const double* sums;
  double* result;
  CS_BODY void operator()(Block& block) const {
    double sum = 0;
    for (int i = block.thread(); i < count; i += block.threads())
      sum = pow_sum_combine(largest, sum, sums[i]);
    sum = pow_sum_of_block(block, largest, sum);
    if (block.thread() == 0) *result = sum;
  }
};

}  // namespace

void run(CudaDevice& device, const PowSum& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    PowSumKernel<T> kernel{};
    kernel.all = run_of<1>(args.count, kPackOf<T>, {Operand{args.x, sizeof(T)}});
    const std::int64_t of_a_block = kPowSumThreads * PowSumKernel<T>::kDeep;
    // At least one block: an empty sum is 0.
    const std::int64_t wanted =
        std::max<std::int64_t>(1, (kernel.all.packs + of_a_block - 1) / of_a_block);
    const std::int64_t blocks = std::min(wanted, kPowSumBlocks);
    const std::size_t bytes = static_cast<std::size_t>(blocks) * sizeof(double);
    const std::size_t shared = kPowSumThreads / kWarp * sizeof(double);
    kernel.p = args.p;
    kernel.x = as<T>(args.x);
    kernel.sums = blocks == 1 ? args.result : static_cast<double*>(device.allocate(bytes));
    launch(device, "pow sum", kernel, blocks, kPowSumThreads, shared);
    if (blocks == 1) return;
    PowSumEndKernel end{};
    end.largest = args.p == 0;
    end.count = static_cast<int>(blocks);
    end.sums = kernel.sums;
    end.result = args.result;
    launch(device, "pow sum", end, 1, kPowSumThreads, shared);
    device.deallocate(kernel.sums, bytes, {});
  });
}

}  // namespace coshard::kernels::cuda
