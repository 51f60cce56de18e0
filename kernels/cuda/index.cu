// Gather, and triangular masking. Elements are moved as bits.
#include "kernels/cuda/bits.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/index_array.h"

namespace coshard::kernels::cuda {
namespace {

template <class Bits>
struct GatherKernel : PerElement {
  StridedIndex<3> all;  // index, x where its dimension begins, out
  IndexArray index;
  const Bits* x;
  Bits* out;
  std::int64_t stride;  // of x along the dimension
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < all.count; i += block.grid_threads()) {
      std::int64_t at[3];
      all.offsets(i, at);
      const std::int64_t from = index.checked(block, at[0]);
      out[at[2]] = from >= 0 ? x[at[1] + from * stride] : Bits{};
    }
  }
};

template <class Bits, int kSize>
struct TriangleKernel : PerElement {
  Elements<2> all;
  std::int64_t rows, columns, diagonal;
  bool upper;
  const Bits* x;
  Bits* y;
  CS_BODY void operator()(Block& block) const {
    each_pack<kSize, 1>(block, all, [this](const auto& places) {
      auto tile = places.load(1, x);
      const std::int64_t first = places.first[0] < 0 ? 0 : places.first[0];
      const std::int64_t row = first / columns;
      std::int64_t i = row % rows;
      std::int64_t j = first - row * columns;
      CS_UNROLL
      for (int e = 0; e < kSize; ++e) {
        if (places.first[0] + e < 0) continue;
        const bool kept = upper ? j - i >= diagonal : j - i <= diagonal;
        if (!kept) tile.at[e] = Bits{};
        if (++j < columns) continue;
        j = 0;
        i = i + 1 < rows ? i + 1 : 0;
      }
      places.store(0, y, tile);
    });
  }
};

template <class Bits, int kSize>
void launch_triangle(CudaDevice& device, const Triangle& args, const Elements<2>& all) {
  TriangleKernel<Bits, kSize> kernel{};
  kernel.all = all;
  kernel.rows = args.y.shape[static_cast<std::size_t>(args.y.ndim - 2)];
  kernel.columns = args.y.shape[static_cast<std::size_t>(args.y.ndim - 1)];
  kernel.diagonal = args.diagonal;
  kernel.upper = args.upper;
  kernel.x = as<Bits>(static_cast<const void*>(args.x.data));
  kernel.y = as<Bits>(args.y.data);
  launch_elements(device, "triangle", kernel, all.packs);
}

}  // namespace

void run(CudaDevice& device, const Gather& args) {
  View base = args.x;
  const auto dim = static_cast<std::size_t>(args.dim);
  base.strides[dim] = 0;
  with_bits(args.out.dtype, [&](auto tag) {
    using Bits = decltype(tag);
    GatherKernel<Bits> kernel{};
    kernel.all = strided_index<3>({&args.index, &base, &args.out});
    kernel.index =
        index_array(device, args.index, DeviceAssertKind::GatherIndex, args.x.shape[dim]);
    kernel.x = as<Bits>(static_cast<const void*>(args.x.data));
    kernel.out = as<Bits>(args.out.data);
    kernel.stride = args.x.strides[dim];
    launch_elements(device, "gather", kernel, kernel.all.count);
  });
}

void run(CudaDevice& device, const Triangle& args) {
  with_bits(args.y.dtype, [&](auto tag) {
    using Bits = decltype(tag);
    constexpr int kSize = kPackOf<Bits>;
    int pack = kSize;
    const auto all = elements_of<2>({&args.y, &args.x}, pack);
    if (pack == kSize) return launch_triangle<Bits, kSize>(device, args, all);
    launch_triangle<Bits, 1>(device, args, all);
  });
}

}  // namespace coshard::kernels::cuda
