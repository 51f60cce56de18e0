#pragma once
// Which tensors are known to differ between ranks (mesh/marks.h). A local tensor of a Shard or a
// Partial has the marks of their mesh dimensions, and so has everything computed from it, gradients
// included. A DTensor has marks of other meshes alone: along its own dimensions the layout says it.
// Rank's thread.
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>

#include <coshard/dtensor/tape/tape.h>
#include "dtensor/mesh/marks.h"

namespace coshard {

// Of what an operator makes of these inputs. Bit i of `reads`: it reads the values of in[i].
inline std::uint64_t marks_of_result(std::span<const Tensor> in, unsigned reads) {
  std::uint64_t marks = 0;
  for (std::size_t i = 0; i < in.size(); ++i)
    if (in[i].defined() && (reads >> std::min<std::size_t>(i, 31) & 1U)) marks |= in[i].marks();
  return marks;
}
// After a write to x: of x, and of what it is a view of.
void add_marks(const Tensor& x, std::uint64_t marks);
// The memory has been written to by other means than operators. A parameter keeps its marks.
void forget_marks(const Tensor& x);

// Error{BadInput}: a plain tensor that is read as Replicate along a dimension along which it
// varies. `who()`: the call, for the error.
template <class Who>
void require_alike(const Tensor& x, const DeviceMesh& mesh, const Layout& layout, Who who) {
  if (x.marks() == 0) return;
  const std::uint64_t wrong = marks_against(x.marks(), mesh, layout);
  CS_REQUIRE(
      wrong == 0, who(), ": reads ", x, " as ", layout, " on ", mesh,
      ", but it was computed from shards or terms of ", names_of(wrong),
      " and differs by rank; say which shard or term it is (Shard, Partial: input_layouts, "
      "from_local), make it equal first (redistribute to Replicate), or call mark_written() if it "
      "has been overwritten since");
}

// A gradient with these marks has come to a leaf, from a loss with `of_loss`.
void note_term(GradMeta& leaf, std::uint64_t marks, std::uint64_t of_loss);
// The marks that are left of `before`, those of the leaf's gradient, once it is summed (or
// averaged) over the ranks along a dimension. `what`: the leaf, for errors. If the loss is not
// known to vary, Avg divides what adds up, of which it warns; and Error{BadInput}: Sum would
// multiply terms that are whole already.
std::uint64_t marks_once_summed(GradMeta& leaf, std::uint64_t before, const DeviceMesh& mesh,
                                int dim, Reduce reduce, const std::string& what);
// The same, with the text of what() made only where there are marks.
template <class What>
requires std::invocable<What> std::uint64_t marks_once_summed(GradMeta& leaf, std::uint64_t before,
                                                              const DeviceMesh& mesh, int dim,
                                                              Reduce reduce, What what) {
  return before == 0 ? 0 : marks_once_summed(leaf, before, mesh, dim, reduce, std::string(what()));
}
// set_grad of what is made of the present gradient, of which the same is known.
void replace_grad(const Tensor& leaf, Tensor gradient);
// Along which each rank trains its own: as declared, and with the dimensions within those.
inline std::uint64_t own_along(const Tensor& leaf) {
  return leaf.grad_meta() ? leaf.grad_meta()->own_along : 0;
}
std::uint64_t all_own_along(const Tensor& leaf);

}  // namespace coshard
