// Masks in the layout that the tensor core kernels read.
#include <cmath>

#include "kernels/cuda/attention_mma.h"

namespace coshard::kernels::cuda {
namespace {

// to [batch, heads, queries, keys] of row `pitch`, from any strides; Bool becomes 0 or -inf.
template <class T>
struct AttentionMaskKernel : PerElement {
  AttentionMask<T> from;
  T* to;
  std::int64_t count, heads, queries, keys, pitch;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t e = block.grid_thread(); e < count; e += block.grid_threads()) {
      const std::int64_t j = e % pitch, i = e / pitch % queries, h = e / pitch / queries % heads;
      const std::int64_t b = e / pitch / queries / heads;
      to[e] = j < keys ? static_cast<T>(from.added(b, h, i, j)) : T(0.0F);
    }
  }
};

// Whether rows consist of pairs, each aligned for one register load.
bool lies_in_pairs(const View& mask) {
  return mask.dtype != DType::Bool && mask.strides[3] == 1 && mask.shape[3] % 2 == 0 &&
         rows_in_pieces(mask, 2);
}

}  // namespace

template <class T>
MmaMask<T> mma_mask(CudaDevice& device, const View& mask, std::shared_ptr<Buffer>& copy) {
  if (mask.data == nullptr) return {};
  if (lies_in_pairs(mask))
    return {as<T>(mask.data), mask.strides[0], mask.strides[1], mask.strides[2]};
  // A broadcast dimension stays broadcast.
  const auto extent = [&](std::size_t d) {
    return mask.strides[d] == 0 ? std::int64_t{1} : mask.shape[d];
  };
  AttentionMaskKernel<T> kernel{};
  kernel.from = attention_mask<T>(mask);
  kernel.heads = extent(1);
  kernel.queries = extent(2);
  kernel.keys = mask.shape[3];
  kernel.pitch = kernel.keys + kernel.keys % 2;
  kernel.count = extent(0) * kernel.heads * kernel.queries * kernel.pitch;
  copy = device.make_buffer(static_cast<std::size_t>(kernel.count) * sizeof(T));
  kernel.to = as<T>(copy->data());
  launch_elements(device, "attention mask", kernel, kernel.count);
  const auto stride = [&](std::size_t d, std::int64_t dense) {
    return mask.strides[d] == 0 ? std::int64_t{0} : dense;
  };
  return {kernel.to, stride(0, kernel.heads * kernel.queries * kernel.pitch),
          stride(1, kernel.queries * kernel.pitch), stride(2, kernel.pitch)};
}

template MmaMask<BFloat16> mma_mask(CudaDevice&, const View&, std::shared_ptr<Buffer>&);
template MmaMask<Float16> mma_mask(CudaDevice&, const View&, std::shared_ptr<Buffer>&);

}  // namespace coshard::kernels::cuda
