#include "runtime/device/cuda/reduce.h"

#include <algorithm>
#include <type_traits>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/launch.h"
#include "runtime/error.h"

namespace coshard {
namespace {

constexpr int kSources = 16;

template <class T>
struct ReduceKernel : PerElement {
  using Sum = std::conditional_t<is_short_float<T>, float, T>;
  const T* sources[kSources];
  int source_count;
  int divisor;  // of an average, in the last turn; otherwise 1
  Reduce reduce;
  T* target;
  std::int64_t count;

  // NaN wins over every extreme; integers wrap.
  CS_BODY Sum combine(Sum a, Sum b) const {
    if (reduce == Reduce::Min) return b < a || b != b ? b : a;
    if (reduce == Reduce::Max) return a < b || b != b ? b : a;
    if constexpr (std::is_integral_v<Sum> && !std::is_same_v<Sum, bool>) {
      using Bits = std::make_unsigned_t<Sum>;
      if (reduce == Reduce::Product)
        return static_cast<Sum>(static_cast<Bits>(a) * static_cast<Bits>(b));
      return static_cast<Sum>(static_cast<Bits>(a) + static_cast<Bits>(b));
    } else {
      return static_cast<Sum>(reduce == Reduce::Product ? a * b : a + b);
    }
  }

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < count; i += block.grid_threads()) {
      Sum sum = static_cast<Sum>(sources[0][i]);
      for (int s = 1; s < source_count; ++s) sum = combine(sum, static_cast<Sum>(sources[s][i]));
      if (divisor != 1) sum = static_cast<Sum>(sum / static_cast<Sum>(divisor));
      target[i] = static_cast<T>(sum);
    }
  }
};

template <class T>
void reduce_typed(CudaDevice& device, Reduce reduce, std::span<const void* const> sources,
                  void* target, std::int64_t count, void* stream) {
  const int all = static_cast<int>(sources.size());
  ReduceKernel<T> kernel{};
  kernel.reduce = reduce;
  kernel.target = static_cast<T*>(target);
  kernel.count = count;
  for (int begin = 0; begin < all;) {
    int n = 0;
    if (begin > 0) kernel.sources[n++] = kernel.target;
    while (n < kSources && begin < all)
      kernel.sources[n++] = static_cast<const T*>(sources[begin++]);
    kernel.source_count = n;
    kernel.divisor = reduce == Reduce::Avg && begin == all ? all : 1;
    launch(device, "reduce over ranks", kernel, blocks_for(count), 256, 0, stream);
  }
}

}  // namespace

void reduce_on_device(CudaDevice& device, DType dtype, Reduce reduce,
                      std::span<const void* const> sources, void* target, std::int64_t count,
                      void* stream) {
  if (count == 0) return;
  switch (dtype) {
    case DType::F32: return reduce_typed<float>(device, reduce, sources, target, count, stream);
    case DType::F64: return reduce_typed<double>(device, reduce, sources, target, count, stream);
    case DType::BF16: return reduce_typed<BFloat16>(device, reduce, sources, target, count, stream);
    case DType::F16: return reduce_typed<Float16>(device, reduce, sources, target, count, stream);
    case DType::I64:
      return reduce_typed<std::int64_t>(device, reduce, sources, target, count, stream);
    case DType::I32:
      return reduce_typed<std::int32_t>(device, reduce, sources, target, count, stream);
    case DType::Bool:
      return reduce_typed<std::uint8_t>(device, reduce, sources, target, count, stream);
  }
}

}  // namespace coshard
