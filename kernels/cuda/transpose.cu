#include "kernels/cuda/transpose.h"

namespace coshard::kernels::cuda {
namespace {

constexpr int kTransposeTile = 32;
constexpr int kTransposeThreads = 256;
constexpr std::int64_t kTransposeLeast = 16;  // a smaller dimension leaves most of a tile empty

// A tile has 32 rows, along which `from` is dense, and 32 columns, along which `to` is.
template <class Bits>
struct TransposeKernel : KernelTraits<kTransposeThreads, true> {
  static constexpr int kLine = kTransposeTile + 1;  // avoids bank conflicts
  static constexpr std::size_t kShared = kTransposeTile * kLine * sizeof(Bits);
  StridedIndex<2> others;  // the other dimensions
  std::int64_t rows, columns, row_tiles, column_tiles;
  std::int64_t to_stride, from_stride;  // strides of a row and of a column
  Bits* to;
  const Bits* from;

  std::int64_t tiles() const { return others.count * row_tiles * column_tiles; }

  CS_BODY void operator()(Block& block) const {
    auto* tile = block.shared<Bits>();
    const std::int64_t all = others.count * row_tiles * column_tiles;
    for (std::int64_t t = block.index(); t < all; t += block.count()) {
      const std::int64_t line = t / column_tiles;
      const std::int64_t other = line / row_tiles;
      const std::int64_t first_row = (line - other * row_tiles) * kTransposeTile;
      const std::int64_t first_column = (t - line * column_tiles) * kTransposeTile;
      std::int64_t at[2];
      others.offsets(other, at);
      block.barrier();
      for (int k = block.warp(); k < kTransposeTile; k += kTransposeThreads / kWarp) {
        const std::int64_t row = first_row + block.lane(), column = first_column + k;
        if (row < rows && column < columns)
          tile[k * kLine + block.lane()] = from[at[1] + row + column * from_stride];
      }
      block.barrier();
      for (int k = block.warp(); k < kTransposeTile; k += kTransposeThreads / kWarp) {
        const std::int64_t row = first_row + k, column = first_column + block.lane();
        if (row < rows && column < columns)
          to[at[0] + column + row * to_stride] = tile[block.lane() * kLine + k];
      }
    }
  }
};

template <class Bits>
void launch_transpose(CudaDevice& device, void* to, const void* from, const StridedIndex<2>& index,
                      int row_dim) {
  TransposeKernel<Bits> kernel{};
  const int last = index.ndim - 1;
  kernel.others = index;
  kernel.others.ndim = 0;
  for (int d = 0; d < last; ++d) {
    if (d == row_dim) continue;
    const int into = kernel.others.ndim++;
    kernel.others.shape[into] = index.shape[d];
    for (int v = 0; v < 2; ++v) kernel.others.strides[v][into] = index.strides[v][d];
  }
  kernel.others.settle();
  kernel.rows = index.shape[row_dim];
  kernel.columns = index.shape[last];
  kernel.row_tiles = (kernel.rows + kTransposeTile - 1) / kTransposeTile;
  kernel.column_tiles = (kernel.columns + kTransposeTile - 1) / kTransposeTile;
  kernel.to_stride = index.strides[0][row_dim];
  kernel.from_stride = index.strides[1][last];
  kernel.to = as<Bits>(to);
  kernel.from = as<Bits>(from);
  constexpr std::int64_t kMostBlocks = 1 << 20;
  const std::int64_t tiles = kernel.tiles();
  launch(device, "transpose", kernel, tiles < kMostBlocks ? tiles : kMostBlocks, kTransposeThreads,
         TransposeKernel<Bits>::kShared);
}

}  // namespace

bool copy_transposed(CudaDevice& device, void* to, const void* from, std::size_t bytes,
                     const StridedIndex<2>& index) {
  const int last = index.ndim - 1;
  if (index.count == 0 || last < 1 || index.strides[0][last] != 1 || index.strides[1][last] == 1 ||
      index.shape[last] < kTransposeLeast)
    return false;
  for (int d = 0; d < last; ++d) {
    if (index.strides[1][d] != 1 || index.shape[d] < kTransposeLeast) continue;
    switch (bytes) {
      case 1: launch_transpose<std::uint8_t>(device, to, from, index, d); break;
      case 2: launch_transpose<std::uint16_t>(device, to, from, index, d); break;
      case 4: launch_transpose<std::uint32_t>(device, to, from, index, d); break;
      default: launch_transpose<std::uint64_t>(device, to, from, index, d);
    }
    return true;
  }
  return false;
}

}  // namespace coshard::kernels::cuda
