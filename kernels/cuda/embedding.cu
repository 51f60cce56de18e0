// Embedding lookup, and the table's gradient: the ids are sorted stably, and for each distinct id
// its gradient rows are added in order of position, without atomics.
#include "kernels/cuda/row_packs.h"

namespace coshard::kernels::cuda {
namespace {

template <class T, class Id, int W>
struct EmbeddingKernel : PerElement {
  std::int64_t count, rows, packs, first;  // packs of W elements in a row
  const Id* ids;
  const T* weight;
  T* out;

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < count * packs; i += block.grid_threads()) {
      const std::int64_t n = i % packs;
      const std::int64_t row = static_cast<std::int64_t>(ids[i / packs]) - first;
      Pack<T, W> pack{};
      if (row >= 0 && row < rows) pack = load_pack<W>(weight + (row * packs + n) * W);
      store_pack(out + i * W, pack);
    }
  }
};

// The thread for a pack of the first of equal ids sums that pack over all of them.
template <class T, class Id, int W>
struct EmbeddingGradKernel : PerElement {
  std::int64_t count, rows, packs, first, padding;
  const Id* ids;                 // sorted
  const std::int64_t* position;  // their original positions
  const T* dout;
  T* dweight;  // zero-filled

  CS_BODY std::int64_t end_of(std::int64_t begin) const {
    std::int64_t low = begin + 1, high = count;
    if (low == high || ids[low] != ids[begin]) return low;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (ids[middle] == ids[begin]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < count * packs; i += block.grid_threads()) {
      const std::int64_t begin = i / packs, n = i % packs;
      const auto id = static_cast<std::int64_t>(ids[begin]);
      const std::int64_t row = id - first;
      if (row < 0 || row >= rows || (padding >= 0 && id == padding)) continue;
      if (begin > 0 && ids[begin - 1] == ids[begin]) continue;
      Wide<T> sum[W] = {};
      const std::int64_t end = end_of(begin);
      CS_UNROLL_4
      for (std::int64_t p = begin; p < end; ++p) {
        Wide<T> x[W];
        widen_pack(load_pack<W>(dout + (position[p] * packs + n) * W), x);
        CS_UNROLL
        for (int j = 0; j < W; ++j) sum[j] += x[j];
      }
      store_wide(dweight + (row * packs + n) * W, sum);
    }
  }
};

}  // namespace

void run(CudaDevice& device, const Embedding& args) {
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    with_index(args.ids_dtype, [&](auto id) {
      with_width<T>(in_vectors<T>(args.dim, args.weight, args.out), [&](auto width) {
        using Id = decltype(id);
        EmbeddingKernel<T, Id, width()> kernel{};
        kernel.count = args.count;
        kernel.rows = args.rows;
        kernel.packs = args.dim / width();
        kernel.first = args.first;
        kernel.ids = as<Id>(args.ids);
        kernel.weight = as<T>(args.weight);
        kernel.out = as<T>(args.out);
        launch_elements(device, "embedding", kernel, args.count * kernel.packs);
      });
    });
  });
}

void run(CudaDevice& device, const EmbeddingGrad& args) {
  run(device, Fill{args.dweight, args.dtype, args.rows * args.dim, 0});
  const auto count = static_cast<std::size_t>(args.count);
  const auto sorted = device.make_buffer(count * size_of(args.ids_dtype));
  const auto position = device.make_buffer(count * sizeof(std::int64_t));
  run(device, Sort{false, args.ids_dtype, 1, args.count, 1, args.count, args.ids, sorted->data(),
                   position->data()});
  with_floating(args.dtype, [&](auto tag) {
    using T = decltype(tag);
    with_index(args.ids_dtype, [&](auto id) {
      with_width<T>(in_vectors<T>(args.dim, args.dout, args.dweight), [&](auto width) {
        using Id = decltype(id);
        EmbeddingGradKernel<T, Id, width()> kernel{};
        kernel.count = args.count;
        kernel.rows = args.rows;
        kernel.packs = args.dim / width();
        kernel.first = args.first;
        kernel.padding = args.padding;
        kernel.ids = as<Id>(sorted->data());
        kernel.position = as<std::int64_t>(position->data());
        kernel.dout = as<T>(args.dout);
        kernel.dweight = as<T>(args.dweight);
        launch_elements(device, "embedding gradient", kernel, args.count * kernel.packs);
      });
    });
  });
}

}  // namespace coshard::kernels::cuda
