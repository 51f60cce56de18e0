#include "dtensor/mesh/marks.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/launch/world.h>

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

bool lies_within(const Marked& inner, const Marked& outer) {
  return std::ranges::includes(outer.ranks, inner.ranks);
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

std::uint64_t of_this_world(std::uint64_t marks) {
  std::uint64_t known = 0;
  for (std::size_t i = 0; i < marked->list.size() && marks != 0; ++i) known |= bit_at(i);
  return marks & known;
}

std::uint64_t marks_within(std::uint64_t mark) {
  std::uint64_t within = 0;
  for (std::size_t i = 0; i < marked->list.size(); ++i)
    if (lies_within(marked->list[i], entry_of(mark))) within |= bit_at(i);
  return within;
}

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

}  // namespace coshard
