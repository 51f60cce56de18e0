#include "dtensor/marks.h"

#include <bit>
#include <vector>

#include <coshard/dtensor/distribute.h>
#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

struct Marked {
  Communicator* communicator;  // its world keeps it
  std::vector<int> ranks;      // of the world, ascending
};
struct AllMarked {
  std::vector<Marked> list;
};
const RankLocal<AllMarked> marked;

constexpr std::uint64_t bit_at(std::size_t i) { return std::uint64_t{1} << i; }

std::vector<int> ranks_along(const DeviceMesh& mesh, int dim) {
  const auto& name = mesh.names()[static_cast<std::size_t>(dim)];
  std::vector<int> ranks = mesh.ndim() == 1 ? mesh.ranks() : mesh[name].ranks();
  std::ranges::sort(ranks);
  return ranks;
}

const Marked& entry_of(std::uint64_t mark) {
  return marked->list[static_cast<std::size_t>(std::countr_zero(mark))];
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
    if ((summed >> i & 1U) != 0 && lies_within(marked->list[i], entry_of(mark)))
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

std::string names_of(std::uint64_t marks) {
  std::string text;
  for (; marks != 0; marks &= marks - 1)
    text += str_cat(text.empty() ? "" : ", ", '\'', entry_of(marks).communicator->name(), '\'');
  return text;
}

std::uint64_t outermost_of(std::uint64_t marks) {
  std::uint64_t found = marks;
  for (std::uint64_t rest = marks; rest != 0; rest &= rest - 1)
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
  const auto& meta = x.grad_meta();
  if (meta && meta->requires_grad && !meta->producer) return;
  x.set_marks(0);
  const Tensor base = x.base();
  if (base.defined() && base.local_numel() == x.local_numel()) base.set_marks(0);
}

std::uint64_t marks_against(const DeviceMesh& mesh, const Layout& layout) {
  std::uint64_t marks = 0;
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_replicate()) marks |= mark_of(mesh, m);
  return marks;
}

void note_term(GradMeta& leaf, std::uint64_t marks, std::uint64_t of_loss) {
  leaf.alike_terms |= ~marks;
  leaf.alike_loss |= ~of_loss;
  leaf.summed_along &= ~marks;
  if (marks == 0) return;
  const CallLocation& place = RankContext::current().branch().place;
  leaf.varies_since = place.operation;
  leaf.varies_in = place.module;
}

std::uint64_t marks_once_summed(GradMeta& leaf, std::uint64_t before, const DeviceMesh& mesh,
                                int dim, Reduce reduce, const std::string& what) {
  const std::uint64_t mark = mark_of(mesh, dim);
  if (before == 0 || mark == 0) return before;
  std::uint64_t settled = before & marks_within(mark), around = 0;
  for (std::uint64_t rest = before & ~settled; rest != 0; rest &= rest - 1)
    if (const std::uint64_t one = rest & -rest; lies_within(entry_of(mark), entry_of(one)))
      around |= one;
  const std::uint64_t whole = (settled | around) & leaf.alike_loss;
  CS_REQUIRE(reduce != Reduce::Avg || whole == 0, "the gradient of ", what, " is averaged along ",
             names_of(mark), ", but the loss is the same on these ranks, and each holds a term of ",
             "the gradient; use Reduce::Sum");
  CS_REQUIRE(reduce != Reduce::Sum || (whole & leaf.alike_terms) == 0, "the gradient of ", what,
             " is summed along ", names_of(mark),
             ", but only some of its terms differ by rank, and the others would count once per "
             "rank: it is used inside and outside of a sharded region; make it a DTensor "
             "(NoParallel, SequenceParallel)");
  leaf.summed_along |= mark;
  for (std::uint64_t rest = around; rest != 0; rest &= rest - 1)
    if (const std::uint64_t one = rest & -rest; sums_up(leaf.summed_along, one)) settled |= one;
  return before & ~settled;
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
  return tensor;
}

}  // namespace coshard
