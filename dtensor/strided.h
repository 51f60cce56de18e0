#pragma once
// Views by their place in memory, and gradients through them: what the base of a view needs to know
// of a write through it. Plain tensors. Rank's thread.
#include <coshard/dtensor/tape.h>

namespace coshard {

// Where the elements of a view lie among those of its base.
struct ViewPlace {
  ViewPlace(const Tensor& base, const Tensor& view);
  Shape base_shape, shape;
  Strides base_strides, strides;
  std::int64_t offset;  // of the view's first element from the base's
  std::int64_t extent;  // of the base's memory, in elements
};

// Linear maps of a gradient, recorded where gradients of gradients are wanted. With x of the base's
// shape and y of the view's:
Tensor gathered(const Tensor& x, const ViewPlace& place);   // the view's elements of x
Tensor scattered(const Tensor& y, const ViewPlace& place);  // y there, 0 elsewhere
Tensor masked(const Tensor& x, const ViewPlace& place);     // 0 there, x elsewhere

// A record whose output is the view and whose input is the base.
std::shared_ptr<Record> make_view_record(const ViewPlace& place);

}  // namespace coshard
