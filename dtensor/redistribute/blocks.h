#pragma once
// Copies between a tensor and a buffer, for steps whose data are not contiguous.
#include <span>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include "dtensor/redistribute/shard_map.h"

namespace coshard {

// A block of `size`: at position `begin` of a tensor with any strides, and from element `offset` of
// a buffer with these strides.
struct StridedBlock {
  Shape size, begin;
  std::int64_t offset = 0;
  Strides strides;
};
using StridedBlocks = std::vector<StridedBlock>;

void copy_out(const Tensor& tensor, const Tensor& buffer, std::span<const StridedBlock> blocks);
void copy_in(const Tensor& buffer, const Tensor& tensor, std::span<const StridedBlock> blocks);

// Positions per tensor dimension.
using Region = std::vector<Ranges>;
std::int64_t numel(const Region& parts);
Shape shape_of(const Region& parts);
// What a rank holds under a layout; the intersection of two regions.
Region region_of(ShardMap& shard_map, const Layout& layout, int rank);
Region intersect(const Region& a, const Region& b);

// The blocks of `part` that are both in the tensor (positions `whole`) and in the buffer (positions
// `dense`, row-major from `offset`).
StridedBlocks blocks_of(const Region& part, const Region& whole, const Region& dense,
                        std::int64_t offset = 0);

}  // namespace coshard
