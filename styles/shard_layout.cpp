#include "styles/shard_layout.h"

#include <utility>

#include "dtensor/ops/local.h"
#include "styles/shard_group.h"

namespace coshard {

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
      const Shape& shape = parameters[i].shape;
      ShardLayout::Place& place = layout.places[i];
      if (place.begin < 0) continue;
      if (rank == own_rank) place.shard_begin = layout.total - before;
      const Chunk rows = chunk_of(shape[0], ranks, rank);
      const std::int64_t row = shape[0] == 0 ? 0 : numel(shape) / shape[0];
      if (rows.size * row == 0) continue;
      layout.blocks.push_back({Shape{rows.size * row}, Shape{place.begin + rows.offset * row},
                               layout.total, Strides{1}});
      layout.total += rows.size * row;
    }
    counts.push_back(layout.total - before);
  }
  layout.counts = std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
  return std::make_shared<const ShardLayout>(std::move(layout));
}

}  // namespace coshard
