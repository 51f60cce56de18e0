// Copies between views, with conversion, and fills.
#include "kernels/cuda/bits.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/transpose.h"

namespace coshard::kernels::cuda {
namespace {

// A word as wide as one memory access.
struct alignas(16) Word16 {
  std::uint64_t low, high;
};

// Copies within one dtype: Word has the size of an element, or of several adjacent ones.
template <class Word, int kSize>
struct MoveKernel : PerElement {
  static constexpr int kDeep = sizeof(Word) < 4 && kSize > 1 ? sizeof(Word) : 4;
  Elements<2> all;
  Word* to;
  const Word* from;
  CS_BODY void operator()(Block& block) const {
    each_pack<kSize, kDeep>(
        block, all, [this](const auto& places) { places.store(0, to, places.load(1, from)); });
  }
};

template <class Word, int kSize>
void launch_move(CudaDevice& device, const Copy& args, const Elements<2>& all) {
  using Kernel = MoveKernel<Word, kSize>;
  Kernel kernel{};
  kernel.all = all;
  kernel.to = as<Word>(args.to.data);
  kernel.from = as<Word>(static_cast<const void*>(args.from.data));
  launch_elements(device, "copy", kernel, all.packs, Kernel::kDeep);
}

// Regards the views as words of `bytes`, several elements of the last dimension each; false unless
// that dimension is dense and all sizes, strides and addresses are multiples of that.
bool in_words(StridedIndex<2>& index, const Copy& args, std::size_t bytes) {
  const auto each = static_cast<std::int64_t>(bytes / size_of(args.to.dtype));
  if (each <= 1 || index.ndim == 0) return each == 1;
  const auto of = [bytes](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % bytes;
  };
  const int last = index.ndim - 1;
  if (of(args.to.data) != 0 || of(args.from.data) != 0 || index.shape[last] % each != 0)
    return false;
  for (const auto& strides : index.strides) {
    if (strides[last] != 1) return false;
    for (int d = 0; d < last; ++d)
      if (strides[d] % each != 0) return false;
  }
  index.shape[last] /= each;
  for (auto& strides : index.strides)
    for (int d = 0; d < last; ++d) strides[d] /= each;
  index.settle();
  return true;
}

void move_words(CudaDevice& device, const Copy& args, StridedIndex<2> index) {
  const auto elements = [&] {
    Elements<2> all;
    all.index = index;
    all.count = all.packs = index.count;
    all.steps[0] = all.steps[1] = 1;
    all.aligned = true;
    return all;
  };
  if (in_words(index, args, 16)) return launch_move<Word16, 1>(device, args, elements());
  if (in_words(index, args, 8)) return launch_move<std::uint64_t, 1>(device, args, elements());
  if (in_words(index, args, 4)) return launch_move<std::uint32_t, 1>(device, args, elements());
  if (in_words(index, args, 2)) return launch_move<std::uint16_t, 1>(device, args, elements());
  launch_move<std::uint8_t, 1>(device, args, elements());
}

void move(CudaDevice& device, const Copy& args) {
  with_bits(args.to.dtype, [&](auto tag) {
    using Bits = decltype(tag);
    int pack = kPackOf<Bits>;
    const auto all = elements_of<2>({&args.to, &args.from}, pack);
    if (all.run && all.aligned) return launch_move<Bits, kPackOf<Bits>>(device, args, all);
    const auto index = strided_index<2>({&args.to, &args.from});
    if (copy_transposed(device, args.to.data, args.from.data, sizeof(Bits), index)) return;
    move_words(device, args, index);
  });
}

template <class To, class From, int kSize>
struct ConvertKernel : PerElement {
  static constexpr int kDeep = kSize == 1 ? 1 : 4;
  Elements<2> all;
  To* to;
  const From* from;
  CS_BODY void operator()(Block& block) const {
    each_pack<kSize, kDeep>(block, all, [this](const auto& places) {
      const auto in = places.load(1, from);
      Tile<To, kSize * kDeep> out;
      CS_UNROLL
      for (int i = 0; i < kSize * kDeep; ++i) out.at[i] = converted<To>(in.at[i]);
      places.store(0, to, out);
    });
  }
};

template <class To, class From, int kSize>
void launch_convert(CudaDevice& device, const Copy& args, const Elements<2>& all) {
  using Kernel = ConvertKernel<To, From, kSize>;
  Kernel kernel{};
  kernel.all = all;
  kernel.to = as<To>(args.to.data);
  kernel.from = as<From>(static_cast<const void*>(args.from.data));
  launch_elements(device, "copy", kernel, all.packs, Kernel::kDeep);
}

// Between f32 and bf16 in packs: training does this for every parameter and gradient.
template <class To, class From>
void convert(CudaDevice& device, const Copy& args) {
  constexpr bool kOften = std::is_same_v<Wide<To>, float> && std::is_same_v<Wide<From>, float>;
  constexpr int kSize = kOften ? 4 : 1;
  int pack = kSize;
  const auto all = elements_of<2>({&args.to, &args.from}, pack);
  if (pack == kSize) return launch_convert<To, From, kSize>(device, args, all);
  launch_convert<To, From, 1>(device, args, all);
}

// To or from an 8-bit float: the dtypes are data, since as types they would double the kernels.
struct CastKernel : PerElement {
  Elements<2> all;
  DType to_dtype, from_dtype;
  void* to;
  const void* from;
  CS_BODY void operator()(Block& block) const {
    each_pack<1, 1>(block, all, [this](const auto& places) {
      if (places.has(0, 0))
        store_float(to_dtype, to, places.at[0][0], load_float(from_dtype, from, places.at[0][1]));
    });
  }
};

void cast(CudaDevice& device, const Copy& args) {
  int pack = 1;
  CastKernel kernel{};
  kernel.all = elements_of<2>({&args.to, &args.from}, pack);
  kernel.to_dtype = args.to.dtype;
  kernel.from_dtype = args.from.dtype;
  kernel.to = args.to.data;
  kernel.from = args.from.data;
  launch_elements(device, "copy", kernel, kernel.all.packs);
}

template <class Bits>
struct FillKernel : PerElement {
  static constexpr int kDeep = sizeof(Bits) < 4 ? sizeof(Bits) : 4;
  Elements<1> all;
  Bits value;
  Bits* data;
  CS_BODY void operator()(Block& block) const {
    each_pack<kPackOf<Bits>, kDeep>(block, all, [this](const auto& places) {
      Tile<Bits, kPackOf<Bits> * kDeep> tile;
      CS_UNROLL
      for (Bits& element : tile.at) element = value;
      places.store(0, data, tile);
    });
  }
};

}  // namespace

void run(CudaDevice& device, const Copy& args) {
  if (args.to.dtype == args.from.dtype) return move(device, args);
  if (is_float8(args.to.dtype) || is_float8(args.from.dtype)) return cast(device, args);
  with_any(args.to.dtype, [&](auto to) {
    with_any(args.from.dtype, [&](auto from) {
      using To = decltype(to);
      using From = decltype(from);
      if constexpr (!std::is_same_v<To, From>) convert<To, From>(device, args);
    });
  });
}

void run(CudaDevice& device, const Fill& args) {
  with_bits(args.dtype, [&](auto tag) {
    using Bits = decltype(tag);
    FillKernel<Bits> kernel{};
    kernel.all = run_of<1>(args.count, kPackOf<Bits>, {Operand{args.data, sizeof(Bits)}});
    kernel.value = bits_of<Bits>(args.dtype, args.value);
    kernel.data = as<Bits>(args.data);
    launch_elements(device, "fill", kernel, kernel.all.packs, FillKernel<Bits>::kDeep);
  });
}

}  // namespace coshard::kernels::cuda
