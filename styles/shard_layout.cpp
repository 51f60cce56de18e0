#include "styles/shard_layout.h"

#include <utility>

#include "dtensor/ops/local.h"
#include "kernels/run.h"
#include "styles/shard_group.h"

namespace coshard {
namespace {

// What one rank keeps of a parameter. Returns the number of its elements.
std::int64_t add_blocks(const ShardedParameter& p, const Ranges& kept, std::int64_t begin,
                        std::int64_t offset, std::vector<ShardLayout::Block>& blocks) {
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < static_cast<int>(p.shape.size()); ++d)
    if (d != p.dim) (d < p.dim ? outer : inner) *= p.shape[static_cast<std::size_t>(d)];
  const std::int64_t line = p.shape[static_cast<std::size_t>(p.dim)] * inner;
  const std::int64_t packed = count_of(kept) * inner;
  if (outer * packed == 0) return 0;
  for (std::int64_t at = offset; const Range& range : kept) {
    const std::int64_t run = (range.end - range.begin) * inner, from = begin + range.begin * inner;
    if (outer == 1)
      blocks.push_back({Shape{run}, from, at, Strides{1}, Strides{1}});
    else
      blocks.push_back({Shape{outer, run}, from, at, Strides{line, 1}, Strides{packed, 1}});
    at += run;
  }
  return outer * packed;
}

}  // namespace

std::shared_ptr<const ShardLayout> shard_layout(
    const std::vector<ShardedParameter>& parameters, DType dtype, int ranks, int own_rank,
    const std::function<bool(const ShardedParameter&)>& included) {
  ShardLayout layout;
  for (const ShardedParameter& p : parameters) {
    ShardLayout::Place& place = layout.places.emplace_back();
    if (!included(p)) continue;
    place.begin = layout.size;
    layout.size = aligned(layout.size + numel(p.shape), dtype);
  }
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t before = layout.total;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ShardLayout::Place& place = layout.places[i];
      if (place.begin < 0) continue;
      if (rank == own_rank) place.shard_begin = layout.total - before;
      layout.total += add_blocks(parameters[i], parameters[i].kept[static_cast<std::size_t>(rank)],
                                 place.begin, layout.total, layout.blocks);
    }
    counts.push_back(layout.total - before);
  }
  layout.counts = std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
  return std::make_shared<const ShardLayout>(std::move(layout));
}

void pack(const Tensor& buffer, const Tensor& data, const ShardLayout& layout) {
  for (const ShardLayout::Block& b : layout.blocks)
    kernels::run(*data.device(), kernels::Copy{view_of(data, b.size, b.packed, b.offset),
                                               view_of(buffer, b.size, b.strides, b.begin)});
}

void unpack(const Tensor& data, const Tensor& buffer, const ShardLayout& layout) {
  for (const ShardLayout::Block& b : layout.blocks)
    kernels::run(*buffer.device(), kernels::Copy{view_of(buffer, b.size, b.strides, b.begin),
                                                 view_of(data, b.size, b.packed, b.offset)});
}

}  // namespace coshard
