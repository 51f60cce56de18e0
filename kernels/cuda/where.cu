// Selection between two arrays or scalars, with broadcasting. Elements are moved as bits.
#include "kernels/cuda/bits.h"
#include "kernels/cuda/elements.h"

namespace coshard::kernels::cuda {
namespace {

template <class Bits, int kSize>
struct WhereKernel : PerElement {
  Elements<4> all;
  const bool* condition;
  const Bits* x;  // null: `value`
  const Bits* y;
  Bits value;
  Bits* out;
  CS_BODY void operator()(Block& block) const {
    each_pack<kSize, 1>(block, all, [this](const auto& places) {
      const auto chosen = places.load(1, condition);
      const auto first = side(places, 2, x);
      auto result = side(places, 3, y);
      CS_UNROLL
      for (int i = 0; i < kSize; ++i)
        if (chosen.at[i]) result.at[i] = first.at[i];
      places.store(0, out, result);
    });
  }

  template <class P>
  CS_BODY Tile<Bits, kSize> side(const P& places, int view, const Bits* from) const {
    if (from != nullptr) return places.load(view, from);
    Tile<Bits, kSize> tile;
    CS_UNROLL
    for (int i = 0; i < kSize; ++i) tile.at[i] = value;
    return tile;
  }
};

template <class Bits, int kSize>
void launch_where(CudaDevice& device, const Where& args, const Elements<4>& all) {
  WhereKernel<Bits, kSize> kernel{};
  kernel.all = all;
  kernel.condition = as<bool>(static_cast<const void*>(args.condition.data));
  kernel.x = as<Bits>(static_cast<const void*>(args.x.data));
  kernel.y = as<Bits>(static_cast<const void*>(args.y.data));
  kernel.value = bits_of<Bits>(args.out.dtype, args.value);
  kernel.out = as<Bits>(args.out.data);
  launch_elements(device, "where", kernel, all.packs);
}

}  // namespace

void run(CudaDevice& device, const Where& args) {
  with_bits(args.out.dtype, [&](auto tag) {
    using Bits = decltype(tag);
    constexpr int kSize = kPackOf<Bits>;
    View x = args.x, y = args.y;
    x.dtype = y.dtype = args.out.dtype;
    int pack = kSize;
    const auto all = elements_of<4>({&args.out, &args.condition, &x, &y}, pack);
    if (pack == kSize) return launch_where<Bits, kSize>(device, args, all);
    launch_where<Bits, 1>(device, args, all);
  });
}

}  // namespace coshard::kernels::cuda
