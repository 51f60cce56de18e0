#pragma once
// The layouts that a plan may pass through. Depends on the mesh and on the number of tensor
// dimensions, not on their sizes, unless there are too many. Rank's thread.
#include <memory>
#include <vector>

#include <coshard/dtensor/mesh/layout.h>

namespace coshard {

// Every assignment of R, of a Partial and of shards to the mesh dimensions, where
//   a StridedShard matches shards of its tensor dimension on inner mesh dimensions, so that the
//     mesh dimensions that shard a tensor dimension may be nested in any order;
//   a Partial is the one of `from` or `to` on that mesh dimension, or P(sum) if `from` has a sum or
//     an average anywhere;
//   a StridedShard of `from` or `to` may also stand on its mesh dimension beside anything else.
// A mesh dimension of one rank is R. Always in the same order, `from` and `to` among them; the last
// ones are kept for the next call.
// On meshes of five or more dimensions there may be more than kMostLayouts. Then fewer are offered,
// the first of these that are few enough: shards only of the tensor dimensions that `from` or `to`
// shards and of the largest one; those only nested in the order of the mesh, as always on meshes of
// more than five dimensions; the placements of `from` and `to`, R and P(sum).
constexpr std::size_t kMostLayouts = 4'000;
std::shared_ptr<const std::vector<Layout>> plan_layouts(const std::vector<int>& mesh_shape,
                                                        const Shape& shape, const Layout& from,
                                                        const Layout& to);

}  // namespace coshard
