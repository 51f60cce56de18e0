#include "dtensor/tape/marks.h"

#include <atomic>
#include <bit>
#include <iterator>
#include <vector>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/coro/user_call.h"
#include "runtime/warn.h"

namespace coshard {
namespace {

struct Marked {
  Communicator* communicator;  // its world keeps it
  std::vector<int> ranks;      // of the world, ascending
};
struct AllMarked {
  // A tensor that outlives its world has bits that mean nothing in the next one, which therefore
  // begins with other bits.
  AllMarked() : first(7 * worlds.fetch_add(1, std::memory_order_relaxed)) {}
  static inline std::atomic<std::size_t> worlds = 0;
  std::size_t first;
  std::vector<Marked> list;
};
const RankLocal<AllMarked> marked;

std::uint64_t bit_at(std::size_t i) { return std::uint64_t{1} << (marked->first + i) % 64; }

std::vector<int> ranks_along(const DeviceMesh& mesh, int dim) {
  const auto& name = mesh.names()[static_cast<std::size_t>(dim)];
  std::vector<int> ranks = mesh.ndim() == 1 ? mesh.ranks() : mesh[name].ranks();
  std::ranges::sort(ranks);
  return ranks;
}

// Of the lowest mark.
const Marked& entry_of(std::uint64_t mark) {
  const auto bit = static_cast<std::size_t>(std::countr_zero(mark));
  return marked->list[(bit + 64 - marked->first % 64) % 64];
}

std::uint64_t of_this_world(std::uint64_t marks) {
  std::uint64_t known = 0;
  for (std::size_t i = 0; i < marked->list.size() && marks != 0; ++i) known |= bit_at(i);
  return marks & known;
}

bool lies_within(const Marked& inner, const Marked& outer) {
  return std::ranges::includes(outer.ranks, inner.ranks);
}

// Those whose communicators connect only ranks that this one does.
std::uint64_t marks_within(std::uint64_t mark) {
  std::uint64_t within = 0;
  for (std::size_t i = 0; i < marked->list.size(); ++i)
    if (lies_within(marked->list[i], entry_of(mark))) within |= bit_at(i);
  return within;
}

// Whether sums along these dimensions add up to a sum over all ranks of `mark`.
bool sums_up(std::uint64_t summed, std::uint64_t mark) {
  std::size_t ranks = 1;
  for (std::size_t i = 0; i < marked->list.size(); ++i)
    if ((summed & bit_at(i)) != 0 && lies_within(marked->list[i], entry_of(mark)))
      ranks *= marked->list[i].ranks.size();
  return ranks >= entry_of(mark).ranks.size();
}

}  // namespace

std::uint64_t mark_of(const DeviceMesh& mesh, int dim) {
  if (mesh.size(dim) == 1 || !mesh.contains_this_rank() || World::current() == nullptr) return 0;
  Communicator* const communicator = &mesh.communicator(dim);
  std::vector<Marked>& list = marked->list;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (list[i].communicator == communicator) return bit_at(i);
  if (list.size() == 64) return 0;
  list.push_back({communicator, ranks_along(mesh, dim)});
  return bit_at(list.size() - 1);
}

Communicator& communicator_of(std::uint64_t mark) { return *entry_of(mark).communicator; }

std::vector<std::uint64_t> in_common_order(std::uint64_t marks) {
  std::vector<std::uint64_t> list;
  for (marks = of_this_world(marks); marks != 0; marks &= marks - 1) list.push_back(marks & -marks);
  std::ranges::sort(list, {}, [](std::uint64_t mark) {
    const Communicator& c = communicator_of(mark);
    return std::pair(std::string(c.name()), c.size());
  });
  return list;
}

std::uint64_t all_own_along(const Tensor& leaf) {
  std::uint64_t own = of_this_world(own_along(leaf)), all = own;
  for (; own != 0; own &= own - 1) all |= marks_within(own & -own);
  return all;
}

std::string names_of(std::uint64_t marks) {
  std::string text;
  for (marks = of_this_world(marks); marks != 0; marks &= marks - 1)
    text += str_cat(text.empty() ? "" : ", ", '\'', entry_of(marks).communicator->name(), '\'');
  return text;
}

std::uint64_t outermost_of(std::uint64_t marks) {
  std::uint64_t found = of_this_world(marks);
  for (std::uint64_t rest = found; rest != 0; rest &= rest - 1)
    found &= ~marks_within(rest & -rest) | (rest & -rest);
  return found;
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

std::uint64_t marks_outside(std::uint64_t marks, const Spec& spec) {
  std::uint64_t outside = of_this_world(marks & ~spec.mesh_marks);
  const std::vector<int>& ranks = spec.mesh.ranks();
  for (std::uint64_t rest = outside; rest != 0; rest &= rest - 1) {
    const std::vector<int>& own = entry_of(rest).ranks;
    const auto lies_there = [&](int rank) { return std::ranges::find(ranks, rank) != ranks.end(); };
    if (own.size() <= ranks.size() && std::ranges::all_of(own, lies_there))
      outside &= ~(rest & -rest);
  }
  return outside;
}

std::uint64_t marks_against(std::uint64_t marks, const DeviceMesh& mesh, int dim) {
  const std::uint64_t mark = mark_of(mesh, dim);
  if (mark == 0) return 0;
  std::uint64_t against = 0;
  for (marks = of_this_world(marks); marks != 0; marks &= marks - 1) {
    std::vector<int> both;  // this rank, and perhaps others that hold something else
    std::ranges::set_intersection(entry_of(marks).ranks, entry_of(mark).ranks,
                                  std::back_inserter(both));
    if (both.size() > 1) against |= marks & -marks;
  }
  return against;
}

std::uint64_t marks_against(std::uint64_t marks, const DeviceMesh& mesh, const Layout& layout) {
  std::uint64_t against = 0;
  for (int m = 0; m < layout.ndim() && marks != 0; ++m)
    if (layout[m].is_replicate()) against |= marks_against(marks, mesh, m);
  return against;
}

std::uint64_t not_covered(std::uint64_t marks, std::uint64_t by) {
  std::uint64_t open = of_this_world(marks & ~by);
  by = of_this_world(by);
  for (std::uint64_t rest = open; rest != 0; rest &= rest - 1)
    if (sums_up(by, rest & -rest)) open &= ~(rest & -rest);
  return open;
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
    if (const std::uint64_t one = rest & -rest; lies_within(entry_of(mark), entry_of(one)))
      around |= one;
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

Tensor varies(const Tensor& tensor, const DeviceMesh& mesh, int dim, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(tensor.defined(), "varies: the tensor is undefined");
  CS_REQUIRE(mesh.defined() && dim >= 0 && dim < mesh.ndim(), "varies: dimension ", dim,
             " is out of range for mesh ", mesh);
  const std::uint64_t mark = mark_of(mesh, dim);
  CS_REQUIRE(!tensor.is_distributed() || (tensor.spec()->mesh_marks & mark) == 0,
             "varies: ", tensor, " has a layout along '",
             mesh.names()[static_cast<std::size_t>(dim)], "', which says how it differs by rank");
  add_marks(tensor, mark);
  if (tensor.requires_grad() && tensor.is_leaf()) tensor.grad_meta()->own_along |= mark;
  return tensor;
}

}  // namespace coshard
