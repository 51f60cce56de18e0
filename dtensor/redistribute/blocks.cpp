#include "dtensor/redistribute/blocks.h"

#include "dtensor/tensor/local.h"

namespace coshard {
namespace {

std::int64_t dot(const Shape& position, const Strides& strides) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < position.size(); ++i) sum += position[i] * strides[i];
  return sum;
}

kernels::View in_tensor(const Tensor& tensor, const StridedBlock& block) {
  return view_of(tensor, block.size, tensor.strides(), dot(block.begin, tensor.strides()));
}
kernels::View in_buffer(const Tensor& buffer, const StridedBlock& block) {
  return view_of(buffer, block.size, block.strides, block.offset);
}

Shape placed(const Shape& begin, const Region& whole) {
  Shape place;
  for (std::size_t d = 0; d < whole.size(); ++d) place.push_back(position_in(whole[d], begin[d]));
  return place;
}

}  // namespace

void copy_out(const Tensor& tensor, const Tensor& buffer, std::span<const StridedBlock> blocks) {
  for (const StridedBlock& block : blocks)
    kernels::run(*buffer.device(),
                 kernels::Copy{in_buffer(buffer, block), in_tensor(tensor, block)});
}

void copy_in(const Tensor& buffer, const Tensor& tensor, std::span<const StridedBlock> blocks) {
  for (const StridedBlock& block : blocks)
    kernels::run(*tensor.device(),
                 kernels::Copy{in_tensor(tensor, block), in_buffer(buffer, block)});
}

std::int64_t numel(const Region& parts) {
  std::int64_t count = 1;
  for (const Ranges& ranges : parts) count *= count_of(ranges);
  return count;
}

Shape shape_of(const Region& parts) {
  Shape shape;
  for (const Ranges& ranges : parts) shape.push_back(count_of(ranges));
  return shape;
}

Region region_of(ShardMap& shard_map, const Layout& layout, int rank) {
  Region region;
  for (int d = 0; d < shard_map.ndim(); ++d)
    region.push_back(shard_map.along(layout, d)[static_cast<std::size_t>(rank)]);
  return region;
}

Region intersect(const Region& a, const Region& b) {
  Region common;
  for (std::size_t d = 0; d < a.size(); ++d) common.push_back(intersect(a[d], b[d]));
  return common;
}

StridedBlocks blocks_of(const Region& part, const Region& whole, const Region& dense,
                        std::int64_t offset) {
  StridedBlocks blocks;
  if (numel(part) == 0) return blocks;
  const Strides strides = row_major(shape_of(dense));
  std::vector<std::size_t> at(part.size(), 0);  // one range of each dimension
  while (true) {
    Shape size, begin;
    for (std::size_t d = 0; d < part.size(); ++d) {
      const Range& range = part[d][at[d]];
      size.push_back(range.end - range.begin);
      begin.push_back(range.begin);
    }
    blocks.push_back(
        {size, placed(begin, whole), offset + dot(placed(begin, dense), strides), strides});
    std::size_t d = part.size();
    while (d > 0 && ++at[d - 1] == part[d - 1].size()) at[--d] = 0;
    if (d == 0) return blocks;
  }
}

}  // namespace coshard
