#pragma once
// Copies between a tensor and a buffer, where a step's data do not lie in one piece.
#include <span>
#include <vector>

#include <coshard/dtensor/tensor.h>
#include "dtensor/redistribute/holdings.h"

namespace coshard {

// A block of `size`: at position `begin` of a tensor, which may have any strides, and from element
// `offset` on in a buffer, with these strides.
struct Box {
  Shape size, begin;
  std::int64_t offset = 0;
  Strides strides;
};
using Boxes = std::vector<Box>;

void copy_out(const Tensor& tensor, const Tensor& buffer, std::span<const Box> boxes);
void copy_in(const Tensor& buffer, const Tensor& tensor, std::span<const Box> boxes);

// Positions per tensor dimension.
using Region = std::vector<Ranges>;
std::int64_t numel(const Region& parts);
Shape shape_of(const Region& parts);
// What a rank holds under a layout, and what two regions have in common.
Region region_of(Holdings& holdings, const Layout& layout, int rank);
Region intersect(const Region& a, const Region& b);

// The blocks of `part`, which the tensor (positions `whole`) and the buffer (positions `dense`,
// which lie row-major from `offset` on) both contain.
Boxes boxes_of(const Region& part, const Region& whole, const Region& dense,
               std::int64_t offset = 0);

}  // namespace coshard
