#include "dtensor/tape/marks.h"

#include <coshard/runtime/coro/rank_context.h>
#include "runtime/warn.h"

namespace coshard {

std::uint64_t all_own_along(const Tensor& leaf) {
  std::uint64_t own = of_this_world(own_along(leaf)), all = own;
  for (; own != 0; own &= own - 1) all |= marks_within(own & -own);
  return all;
}

void add_marks(const Tensor& x, std::uint64_t marks) {
  if (marks == 0) return;
  x.set_marks(x.marks() | marks);
  if (const Tensor base = x.base(); base.defined()) base.set_marks(base.marks() | marks);
}

void forget_marks(const Tensor& x) {
  if (x.marks() == 0) return;
  x.set_marks(own_along(x));
  const Tensor base = x.base();
  if (base.defined() && base.local_numel() == x.local_numel()) base.set_marks(own_along(base));
}

void note_term(GradMeta& leaf, std::uint64_t marks, std::uint64_t of_loss) {
  marks = of_this_world(marks);
  leaf.terms.alike |= ~marks;
  leaf.terms.alike_loss |= ~of_loss;
  if (marks != 0) leaf.terms.from = RankContext::current().branch().place.operation;
  for (; marks != 0; marks &= marks - 1) leaf.terms.summed &= ~marks_within(marks & -marks);
}

std::uint64_t marks_once_summed(GradMeta& leaf, std::uint64_t before, const DeviceMesh& mesh,
                                int dim, Reduce reduce, const std::string& what) {
  const std::uint64_t mark = mark_of(mesh, dim);
  before = of_this_world(before);
  if (before == 0 || mark == 0) return before;
  std::uint64_t settled = before & marks_within(mark), around = 0;
  for (std::uint64_t rest = before & ~settled; rest != 0; rest &= rest - 1)
    if (const std::uint64_t one = rest & -rest; (marks_within(one) & mark) != 0) around |= one;
  const std::uint64_t whole = (settled | around) & leaf.terms.alike_loss;
  if (whole != 0 && reduce == Reduce::Avg) {
    warn_once(str_cat("the gradient of ", what, " is averaged along ", names_of(mark),
                      ", but its terms there seem to belong to one loss, and add up: use "
                      "Reduce::Sum, unless the loss was scaled by the number of ranks"));
    return before & ~settled;  // the same on all ranks now
  }
  CS_REQUIRE((whole & leaf.terms.alike) == 0, "the gradient of ", what, " is summed along ",
             names_of(mark),
             ", but only some of its terms differ by rank, and the others would count once per "
             "rank: it is used inside and outside of a sharded region; make it a DTensor "
             "(NoParallel, SequenceParallel), or say varies(tensor, mesh, dim) of what the others "
             "are computed from, if it differs by rank or is a share of the whole");
  leaf.terms.summed |= mark;
  return not_covered(before & ~settled, leaf.terms.summed | leaf.own_along);
}

void replace_grad(const Tensor& leaf, Tensor gradient) {
  const GradMeta::Terms terms = leaf.grad_meta()->terms;
  leaf.set_grad(std::move(gradient));
  leaf.grad_meta()->terms = terms;
}

}  // namespace coshard
