#pragma once
// Views by their location in memory, and gradients through them: what the base of a view needs to
// know about a write through the view. Of DTensors, a view has the base's shards. Rank's thread.
#include <coshard/dtensor/tape/tape.h>

namespace coshard {

// Where a view's elements are in its base's memory.
struct ViewPlace {
  ViewPlace(const Tensor& base, const Tensor& view);
  Shape base_shape, shape;
  Strides base_strides, strides;
  std::int64_t offset;                          // of the view's first element from the base's
  std::int64_t extent;                          // of the base's memory, in elements
  std::shared_ptr<const Spec> base_spec, spec;  // null for plain tensors
};

// Linear maps of a gradient, recorded if second derivatives are requested. x has the base's shape,
// y the view's.
Tensor gathered(const Tensor& x, const ViewPlace& place);   // the view's elements of x
Tensor scattered(const Tensor& y, const ViewPlace& place);  // y at the view's elements, 0 elsewhere
Tensor masked(const Tensor& x, const ViewPlace& place);     // 0 at the view's elements, x elsewhere

// A record whose output is the view and whose input is the base.
std::shared_ptr<GradNode> make_view_node(const ViewPlace& place);

}  // namespace coshard
