// Scatter. Deterministic: along each line the sources are processed in order, so that of equal
// indices the last one wins and sums are added in the reference's order. A short line gets a
// thread; a long one a block, which takes 256 sources at a time and lets one thread act for all
// with the same target. A few very long lines are split into chunks: one block per chunk stores its
// sums, or the positions of the sources it keeps, in scratch memory, and a second kernel combines
// these in order.
#include <algorithm>

#include "kernels/cuda/bits.h"
#include "kernels/cuda/index_array.h"
#include "kernels/cuda/strided.h"

namespace coshard::kernels::cuda {
namespace {

constexpr std::int64_t kShortLine = 64;
constexpr int kSourcesAtOnce = 256;

// The lines, of type Out, and the sources that are written to them, of type Src.
template <class Out, class Src>
struct ScatterLines {
  StridedIndex<3> lines;  // index, out, src
  IndexArray index;
  Out* out;
  const Src* src;  // null: `value`
  Src value;
  std::int64_t extent;  // per line of the index
  std::int64_t index_stride, out_stride, src_stride;

  CS_BODY Src source(std::int64_t at) const { return src != nullptr ? src[at] : value; }
};

template <class Out, class Src>
CS_BODY Out plus(Out sum, Src more) {
  if constexpr (std::is_same_v<Out, bool>) {
    return sum || more;
  } else if constexpr (std::is_integral_v<Out>) {
    using Bits = std::make_unsigned_t<Out>;
    return static_cast<Out>(static_cast<Bits>(sum) + static_cast<Bits>(more));
  } else {
    return sum + static_cast<Out>(more);
  }
}

template <class Out, class Src, bool kAdd>
struct ShortLineKernel : PerElement {
  ScatterLines<Out, Src> of;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t line = block.grid_thread(); line < of.lines.count;
         line += block.grid_threads()) {
      std::int64_t at[3];
      of.lines.offsets(line, at);
      for (std::int64_t i = 0; i < of.extent; ++i) {
        const std::int64_t to = of.index.checked(block, at[0] + i * of.index_stride);
        if (to < 0) continue;
        Out& place = of.out[at[1] + to * of.out_stride];
        const Src source = of.source(at[2] + i * of.src_stride);
        if constexpr (kAdd) {
          place = plus(place, source);
        } else {
          place = source;
        }
      }
    }
  }
};

// The partial results of the chunks of split lines.
template <class Part>
struct ScatterParts {
  std::int64_t chunks, length;  // per line; sources of all but the last
  std::int64_t limit;           // elements of a line of out
  Part* data;                   // [chunks][lines][limit]; null: not split

  CS_BODY Part* of(std::int64_t chunk, std::int64_t lines, std::int64_t line) const {
    return data + (chunk * lines + line) * limit;
  }
};

// A chunk's partial result: sums, or the number of the last source, from 1 on.
template <class Out, bool kAdd>
using PartOf = std::conditional_t<kAdd, Out, std::int64_t>;

template <class Out, class Src, bool kAdd>
struct LongLineKernel : KernelTraits<kSourcesAtOnce, true> {
  static constexpr std::size_t kShared =
      kSourcesAtOnce * (sizeof(std::int64_t) + (kAdd ? sizeof(Src) : 0));
  ScatterLines<Out, Src> of;
  ScatterParts<PartOf<Out, kAdd>> parts;

  CS_BODY void operator()(Block& block) const {
    auto* targets = block.shared<std::int64_t>();
    auto* sources = block.shared<Src>(kSourcesAtOnce * sizeof(std::int64_t));
    const std::int64_t all = of.lines.count * parts.chunks;
    for (std::int64_t work = block.index(); work < all; work += block.count()) {
      const std::int64_t line = work % of.lines.count, chunk = work / of.lines.count;
      const std::int64_t begin = chunk * parts.length;
      const std::int64_t end = begin + parts.length < of.extent ? begin + parts.length : of.extent;
      std::int64_t at[3];
      of.lines.offsets(line, at);
      for (std::int64_t first = begin; first < end; first += kSourcesAtOnce) {
        const std::int64_t i = first + block.thread();
        std::int64_t to = -1;
        Src source{};
        if (i < end) {
          to = of.index.checked(block, at[0] + i * of.index_stride);
          source = of.source(at[2] + i * of.src_stride);
        }
        block.barrier();
        targets[block.thread()] = to;
        if constexpr (kAdd) sources[block.thread()] = source;
        block.barrier();
        if (to < 0) continue;
        const bool cut = parts.data != nullptr;
        if constexpr (kAdd) {
          add(block.thread(), targets, sources,
              cut ? parts.of(chunk, of.lines.count, line)[to] : of.out[at[1] + to * of.out_stride]);
        } else if (is_last(block.thread(), targets)) {
          if (cut) {
            parts.of(chunk, of.lines.count, line)[to] = i + 1;
          } else {
            of.out[at[1] + to * of.out_stride] = source;
          }
        }
      }
    }
  }

  CS_BODY static bool is_last(int mine, const std::int64_t* targets) {
    for (int t = mine + 1; t < kSourcesAtOnce; ++t)
      if (targets[t] == targets[mine]) return false;
    return true;
  }

  // The first of the threads with the same target adds for all of them.
  CS_BODY static void add(int mine, const std::int64_t* targets, const Src* sources, Out& place) {
    const std::int64_t target = targets[mine];
    for (int t = 0; t < mine; ++t)
      if (targets[t] == target) return;
    Out sum = place;
    for (int t = mine; t < kSourcesAtOnce; ++t)
      if (targets[t] == target) sum = plus(sum, sources[t]);
    place = sum;
  }
};

template <class Out, class Src, bool kAdd>
struct JoinScatterKernel : PerElement {
  ScatterLines<Out, Src> of;
  ScatterParts<PartOf<Out, kAdd>> parts;

  CS_BODY void operator()(Block& block) const {
    const std::int64_t all = of.lines.count * parts.limit;
    for (std::int64_t e = block.grid_thread(); e < all; e += block.grid_threads()) {
      const std::int64_t line = e / parts.limit, to = e % parts.limit;
      std::int64_t at[3];
      of.lines.offsets(line, at);
      Out& place = of.out[at[1] + to * of.out_stride];
      if constexpr (kAdd) {
        Out sum = place;
        for (std::int64_t c = 0; c < parts.chunks; ++c)
          sum = plus(sum, parts.of(c, of.lines.count, line)[to]);
        place = sum;
      } else {
        std::int64_t last = 0;
        for (std::int64_t c = parts.chunks; c > 0 && last == 0; --c)
          last = parts.of(c - 1, of.lines.count, line)[to];
        if (last > 0) place = of.source(at[2] + (last - 1) * of.src_stride);
      }
    }
  }
};

// The number of chunks: enough to occupy the device, each long enough to be worthwhile, and with
// not much more memory than the sources.
template <class Part, class Lines>
ScatterParts<Part> parts_for(const CudaDevice& device, const Lines& of, std::int64_t limit) {
  constexpr std::int64_t kShortest = 8 * kSourcesAtOnce;
  const std::int64_t wanted = 4 * device.multiprocessors() / of.lines.count;
  const std::int64_t most =
      std::min(of.extent / kShortest, 8 * of.extent / std::max<std::int64_t>(limit, 1));
  const std::int64_t count = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(most, 1));
  return {count, (of.extent + count - 1) / count, limit, nullptr};
}

template <class Out, class Src, bool kAdd>
void scatter_long(CudaDevice& device, const ScatterLines<Out, Src>& of, std::int64_t limit) {
  using Part = PartOf<Out, kAdd>;
  using Kernel = LongLineKernel<Out, Src, kAdd>;
  Kernel kernel{};
  kernel.of = of;
  kernel.parts = parts_for<Part>(device, of, limit);
  std::shared_ptr<Buffer> memory;
  if (kernel.parts.chunks > 1) {
    const std::int64_t count = kernel.parts.chunks * of.lines.count * limit;
    memory = device.make_buffer(static_cast<std::size_t>(count) * sizeof(Part));
    kernel.parts.data = static_cast<Part*>(memory->data());
    run(device, Fill{memory->data(), dtype_of<Part>, count, -0.0});  // x + -0 is x, -0 included
  }
  constexpr std::int64_t kMostBlocks = 1 << 20;
  launch(device, "scatter", kernel, std::min(of.lines.count * kernel.parts.chunks, kMostBlocks),
         kSourcesAtOnce, Kernel::kShared);
  if (kernel.parts.chunks == 1) return;
  JoinScatterKernel<Out, Src, kAdd> join{};
  join.of = of;
  join.parts = kernel.parts;
  launch_elements(device, "join of a scatter", join, of.lines.count * limit);
}

template <class Out, class Src, bool kAdd>
void launch_scatter(CudaDevice& device, const Scatter& args, const View& out, Src value) {
  const auto dim = static_cast<std::size_t>(args.dim);
  View starts = args.index;
  starts.shape[dim] = 1;
  ScatterLines<Out, Src> of{};
  of.lines = strided_index<3>({&starts, &out, &args.src});
  of.index = index_array(device, args.index, DeviceAssertKind::ScatterIndex, args.out.shape[dim]);
  of.out = as<Out>(out.data);
  of.src = as<Src>(static_cast<const void*>(args.src.data));
  of.value = value;
  of.extent = args.index.shape[dim];
  of.index_stride = args.index.strides[dim];
  of.out_stride = out.strides[dim];
  of.src_stride = of.src != nullptr ? args.src.strides[dim] : 0;
  if (of.extent == 0 || of.lines.count == 0) return;
  if (of.extent <= kShortLine) {
    ShortLineKernel<Out, Src, kAdd> kernel{};
    kernel.of = of;
    return launch_elements(device, "scatter", kernel, of.lines.count);
  }
  scatter_long<Out, Src, kAdd>(device, of, args.out.shape[dim]);
}

// Sums of bf16 and f16 are kept in f32 and rounded once.
template <class T>
void add_short(CudaDevice& device, const Scatter& args) {
  View sums = args.out;
  std::int64_t count = 1;
  for (int d = sums.ndim - 1; d >= 0; --d) {
    sums.strides[static_cast<std::size_t>(d)] = count;
    count *= sums.shape[static_cast<std::size_t>(d)];
  }
  if (count == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  sums.dtype = DType::F32;
  sums.data = device.allocate(bytes);
  run(device, Copy{sums, args.out});
  launch_scatter<float, T, true>(device, args, sums, T(static_cast<float>(args.value)));
  run(device, Copy{args.out, sums});
  device.deallocate(sums.data, bytes, {});
}

}  // namespace

void run(CudaDevice& device, const Scatter& args) {
  if (!args.add) {
    return with_bits(args.out.dtype, [&](auto tag) {
      using Bits = decltype(tag);
      launch_scatter<Bits, Bits, false>(device, args, args.out,
                                        bits_of<Bits>(args.out.dtype, args.value));
    });
  }
  with_any(args.out.dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (is_short_float<T>) {
      add_short<T>(device, args);
    } else {
      launch_scatter<T, T, true>(device, args, args.out, static_cast<T>(args.value));
    }
  });
}

}  // namespace coshard::kernels::cuda
