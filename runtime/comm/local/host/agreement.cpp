#include "runtime/comm/local/host/agreement.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/comm/collective.h"
#include "runtime/coro/fault_switch.h"
#include "runtime/warn.h"

namespace coshard {
namespace {

// Only a rank with observers knows the innermost module: another one knows it, or one around it.
// And a rank may have wrapped the model in a module of its own. So one path lies within the other.
bool may_be_one_module(std::string_view a, std::string_view b) {
  if (a == b || a.empty() || b.empty()) return true;
  if (a.size() > b.size()) std::swap(a, b);
  return str_cat('.', b, '.').find(str_cat('.', a, '.')) != std::string::npos;
}

}  // namespace

std::string Agreement::side_text(const CollectiveOp& op, int rank) const {
  return call_text(entry(op, rank).args, size(), member(rank));
}

// The last thing `rank` noted before the collective, which its peers did not.
std::string Agreement::noted_text(const CollectiveOp& op, int rank) const {
  const Noted& last = entry(op, rank).args.last_noted;
  if (last.what.empty()) return str_cat("; rank ", member(rank), " has not done so before");
  return str_cat("; rank ", member(rank), " last ", last.what, ' ', last.value, ' ', last.of_what,
                 ' ', last.of);
}

// The first await before the op that `rank` gave up and `other` did not, or the last where it is
// not known what `other` gave up, in another process. Under mutex_.
std::string Agreement::given_up_text(const CollectiveOp& op, int rank, int other) const {
  if (entry(op, rank).print.given_up == 0) return "";
  const auto& own = given_up_[static_cast<std::size_t>(rank)];
  const auto& theirs = given_up_[static_cast<std::size_t>(other)];
  const bool known = entry(op, other).print.given_up == 0 || !theirs.empty();
  const GivenUp* told = nullptr;
  for (const GivenUp& one : own) {
    if (one.number >= op.sequence || (told != nullptr && known)) continue;
    const auto times = [&](const auto& all) {
      return std::ranges::count(all, one.key, &GivenUp::key);
    };
    if (!known || times(own) > times(theirs)) told = &one;
  }
  if (told == nullptr && !own.empty()) return "";
  return str_cat("; rank ", member(rank), " gave up waiting for ",
                 told == nullptr ? "a collective" : told->text);
}

// One text for both if equal; the text that follows then shows the difference.
std::string Agreement::both_sides_text(const CollectiveOp& op, int a, int b) const {
  const std::string one = called_text(entry(op, a).args, size());
  if (one == called_text(entry(op, b).args, size()))
    return str_cat("ranks ", member(a), " and ", member(b), " call ", one);
  return str_cat(side_text(op, a), ", ", side_text(op, b));
}

std::string Agreement::ranks_disagree(const CollectiveOp& op, int a, int b) const {
  return str_cat("ranks disagree on collective #", op.sequence, " of ", title_, ": ",
                 both_sides_text(op, a, b));
}

// `a` becomes the rank that differs from `b`, where that is another.
bool Agreement::calls_agree(const CollectiveOp& op, int& a, int b) const {
  const Entry& one = entry(op, a);
  const Entry& other = entry(op, b);
  bool agree = one.print.call == other.print.call && one.args.noted == other.args.noted &&
               one.args.names == other.args.names &&
               may_be_one_module(one.args.module, other.args.module) &&
               (one.args.branch == other.args.branch || has(Fault::BranchIsNotCompared)) &&
               (one.print.given_up == other.print.given_up || has(Fault::GivenUpIsNotCompared));
  if (!agree || one.args.kind != CollectiveKind::AllToAll) return agree;
  for (int r = 0; r <= b && agree; ++r) {
    if (!entry(op, r).issued()) continue;  // in another process: compared once issued
    agree = flat_counts_agree(entry(op, r).args, r, other.args, b) &&
            flat_counts_agree(other.args, b, entry(op, r).args, r);
    if (!agree) a = r;
  }
  return agree;
}

std::string Agreement::difference(const CollectiveOp& op, int a, int b) const {
  const Entry& one = entry(op, a);
  const Entry& other = entry(op, b);
  if (calls_agree(op, a, b)) {
    if (one.args.order == other.args.order && one.args.replicas == other.args.replicas) return {};
    std::string order = other_order(op, a, b);
    return order.empty() ? other_replicas(op, a, b) : std::move(order);
  }
  if (a > b) std::swap(a, b);  // the same text in all processes
  std::string text = ranks_disagree(op, a, b);
  if (one.print.given_up != other.print.given_up) {
    const std::scoped_lock lock(mutex_);
    text += given_up_text(op, a, b) + given_up_text(op, b, a);
  }
  if (one.args.noted != other.args.noted)
    for (const int r : {a, b}) text += noted_text(op, r);
  return text + other_part(op, a, b);
}

std::string Agreement::part_text(std::size_t at, int a, const Collective* one, int b,
                                 const Collective* other) const {
  if (one == nullptr && other == nullptr) return "; the collectives of both graphs are equal";
  if (a > b) std::swap(a, b), std::swap(one, other);
  const auto side = [&](int rank, const Collective* c) {
    return c != nullptr ? call_text(*c, size(), member(rank))
                        : str_cat("rank ", member(rank), " has no more");
  };
  return str_cat("; they differ in collective ", at + 1, " of the graph: ", side(a, one), ", ",
                 side(b, other));
}

// Of two launches whose lists are known here.
std::string Agreement::other_part(const CollectiveOp& op, int a, int b) const {
  const auto& one = entry(op, a).args.launched;
  const auto& other = entry(op, b).args.launched;
  if (one == nullptr || other == nullptr) return "";
  const std::vector<std::uint64_t> prints = fingerprints(*one, size());
  const auto at = static_cast<std::size_t>(
      std::ranges::mismatch(prints, fingerprints(*other, size())).in1 - prints.begin());
  const auto of = [at](const auto& list) { return at < list->size() ? &(*list)[at] : nullptr; };
  return part_text(at, a, of(one), b, of(other));
}

// Of the parts of a bucket, if they are those of the other rank.
std::string Agreement::other_order(const CollectiveOp& op, int a, int b) const {
  const Counts& one = entry(op, a).args.order;
  const Counts& other = entry(op, b).args.order;
  if (one == nullptr || other == nullptr || *one == *other ||
      !std::ranges::is_permutation(*one, *other))
    return "";
  return ranks_disagree(op, std::min(a, b), std::max(a, b)) +
         "; the two lists hold the same tensors in another order";
}

std::string Agreement::other_replicas(const CollectiveOp& op, int a, int b) const {
  const Collective& one = entry(op, a).args;
  const Collective& other = entry(op, b).args;
  if (one.replicas == other.replicas || !one.replicas || !other.replicas) return "";
  if (!one.replicas->gradients.empty() || !other.replicas->gradients.empty())
    return other_gradients(op, a, b);
  const std::vector<std::uint64_t>& left = one.replicas->hashes;
  const std::vector<std::uint64_t>& right = other.replicas->hashes;
  if (left == right) return "";
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(left, right).in1 - left.begin());
  const std::vector<std::string>& names = one.replicas->names;
  return str_cat(
      "replicas differ: ", at < names.size() ? names[at] : "the number of parameters",
      " is not the same on ranks ", member(std::min(a, b)), " and ", member(std::max(a, b)), " of ",
      title_, location_text(one),
      "; load or seed it alike on all, or pass src_data_rank, whose values the others then get");
}

// Of what both ranks have. Values that differ are each rank's own, and so are their gradients.
std::string Agreement::other_gradients(const CollectiveOp& op, int a, int b) const {
  const ReplicaHashes& one = *entry(op, a).args.replicas;
  const ReplicaHashes& other = *entry(op, b).args.replicas;
  const std::string ranks =
      str_cat("ranks ", member(std::min(a, b)), " and ", member(std::max(a, b)), " of ", title_);
  for (std::size_t i = 0; i < one.gradients.size(); ++i) {
    // A name that two models use says nothing.
    if (std::ranges::count(one.names, one.names[i]) != 1 ||
        std::ranges::count(other.names, one.names[i]) != 1)
      continue;
    const auto found = std::ranges::find(other.names, one.names[i]);
    const auto j = static_cast<std::size_t>(found - other.names.begin());
    if (j >= other.gradients.size() || one.gradients[i] == other.gradients[j]) continue;
    if (one.hashes[i] == other.hashes[j])
      return str_cat(ranks, ": ", one.about[i], "; compared by ", both_sides_text(op, a, b));
    warn_once(str_cat(one.names[i], " differs between the ranks of ", title_,
                      ", and so does its gradient, which nothing sums: each rank trains its own; "
                      "varies(parameter, mesh, dim) says so, without this warning"));
  }
  return "";
}

std::string Agreement::swap(const CollectiveOp& op, int rank, int first) {
  const Entry& its = entry(op, rank);
  const std::string swapped =
      swaps_.look(op.sequence, its.print.call, rank, entry(op, first).args, its.args);
  if (swapped.empty()) return {};
  return ranks_disagree(op, first, rank) + swapped;
}

void Agreement::note_given_up(int rank, std::uint64_t key, std::uint64_t number, std::string text) {
  constexpr std::size_t kMost = 64;
  const std::scoped_lock lock(mutex_);
  std::deque<GivenUp>& all = given_up_[static_cast<std::size_t>(rank)];
  all.push_back({key, number, std::move(text)});
  if (all.size() > kMost) all.pop_front();
}

}  // namespace coshard
