// Whether the ranks' programs agree on an op: what they call, and in which order.
#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"
#include "runtime/coro/fault_switch.h"
#include "runtime/warn.h"

namespace coshard {
namespace {

// Only a rank with observers knows the innermost module: another one knows it, or one around it. And
// a rank may have wrapped the model in a module of its own. So one path lies within the other.
bool may_be_one_module(std::string_view a, std::string_view b) {
  if (a == b || a.empty() || b.empty()) return true;
  if (a.size() > b.size()) std::swap(a, b);
  return str_cat('.', b, '.').find(str_cat('.', a, '.')) != std::string::npos;
}

}  // namespace

std::string LocalGroup::side_text(const CollectiveOp& op, int rank) const {
  return call_text(entry(op, rank).args, size(), members_[static_cast<std::size_t>(rank)]);
}

// The last thing `rank` noted before the collective, which its peers did not.
std::string LocalGroup::noted_text(const CollectiveOp& op, int rank) const {
  const Noted& last = entry(op, rank).args.last_noted;
  const int member = members_[static_cast<std::size_t>(rank)];
  if (last.what.empty()) return str_cat("; rank ", member, " has not done so before");
  return str_cat("; rank ", member, " last ", last.what, ' ', last.value, ' ', last.of_what, ' ',
                 last.of);
}

// The first await before the op that `rank` gave up and `other` did not, or the last where it is not
// known what `other` gave up, in another process. Under cause_mutex_.
std::string LocalGroup::given_up_text(const CollectiveOp& op, int rank, int other) const {
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
  return str_cat("; rank ", members_[static_cast<std::size_t>(rank)], " gave up waiting for ",
                 told == nullptr ? "a collective" : told->text);
}

// One text for both if equal; the text that follows then shows the difference.
std::string LocalGroup::both_sides_text(const CollectiveOp& op, int a, int b) const {
  const std::string one = called_text(entry(op, a).args, size());
  const auto member = [&](int rank) { return members_[static_cast<std::size_t>(rank)]; };
  if (one == called_text(entry(op, b).args, size()))
    return str_cat("ranks ", member(a), " and ", member(b), " call ", one);
  return str_cat(side_text(op, a), ", ", side_text(op, b));
}

// Compares two ranks that have arrived; poisons the group when they disagree.
bool LocalGroup::checked(CollectiveOp& op, int a, int b) {
  const Entry& one = entry(op, a);
  const Entry& other = entry(op, b);
  bool agree = one.print.call == other.print.call && one.args.noted == other.args.noted &&
               one.args.names == other.args.names &&
               may_be_one_module(one.args.module, other.args.module) &&
               (one.args.branch == other.args.branch || has(Fault::BranchIsNotCompared)) &&
               (one.print.given_up == other.print.given_up || has(Fault::GivenUpIsNotCompared));
  if (agree && one.args.kind == CollectiveKind::AllToAll) {
    for (int r = 0; r <= b && agree; ++r) {
      if (!entry(op, r).issued()) continue;  // in another process: compared once issued
      agree = flat_counts_agree(entry(op, r).args, r, other.args, b) &&
              flat_counts_agree(other.args, b, entry(op, r).args, r);
      if (!agree) a = r;
    }
  }
  if (agree) return same_order(op, a, b) && same_replicas(op, a, b);
  if (a > b) std::swap(a, b);  // the same text in all processes
  std::string text = str_cat("ranks disagree on collective #", op.sequence, " of ", title(), ": ",
                             both_sides_text(op, a, b));
  if (one.print.given_up != other.print.given_up) {
    const std::scoped_lock lock(cause_mutex_);
    text += given_up_text(op, a, b) + given_up_text(op, b, a);
  }
  if (one.args.noted != other.args.noted)
    for (const int r : {a, b}) text += noted_text(op, r);
  fail_as_different(text);
  return false;
}

// Whether the parts of a bucket are not those of the other rank's in another order.
bool LocalGroup::same_order(CollectiveOp& op, int a, int b) {
  const Counts& one = entry(op, a).args.order;
  const Counts& other = entry(op, b).args.order;
  if (one == nullptr || other == nullptr || *one == *other ||
      !std::ranges::is_permutation(*one, *other))
    return true;
  fail_as_different(str_cat("ranks disagree on collective #", op.sequence, " of ", title(), ": ",
                            both_sides_text(op, std::min(a, b), std::max(a, b)),
                            "; the two lists hold the same tensors in another order"));
  return false;
}

bool LocalGroup::same_replicas(CollectiveOp& op, int a, int b) {
  const Collective& one = entry(op, a).args;
  const Collective& other = entry(op, b).args;
  if (one.replicas == other.replicas || !one.replicas || !other.replicas) return true;
  if (!one.replicas->gradients.empty() || !other.replicas->gradients.empty())
    return same_gradients(op, a, b);
  const std::vector<std::uint64_t>& left = one.replicas->hashes;
  const std::vector<std::uint64_t>& right = other.replicas->hashes;
  if (left == right) return true;
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(left, right).in1 - left.begin());
  const auto world = [this](int rank) { return members_[static_cast<std::size_t>(rank)]; };
  const std::vector<std::string>& names = one.replicas->names;
  fail_as_different(str_cat(
      "replicas differ: ", at < names.size() ? names[at] : "the number of parameters",
      " is not the same on ranks ", world(std::min(a, b)), " and ", world(std::max(a, b)), " of ",
      title(), location_text(one),
      "; load or seed it alike on all, or pass src_data_rank, whose values the others then get"));
  return false;
}

// Of what both ranks have. Values that differ are each rank's own, and so are their gradients.
bool LocalGroup::same_gradients(CollectiveOp& op, int a, int b) {
  const ReplicaHashes& one = *entry(op, a).args.replicas;
  const ReplicaHashes& other = *entry(op, b).args.replicas;
  const auto world = [this](int rank) { return members_[static_cast<std::size_t>(rank)]; };
  const std::string ranks =
      str_cat("ranks ", world(std::min(a, b)), " and ", world(std::max(a, b)), " of ", title());
  for (std::size_t i = 0; i < one.gradients.size(); ++i) {
    // A name that two models use says nothing.
    if (std::ranges::count(one.names, one.names[i]) != 1 ||
        std::ranges::count(other.names, one.names[i]) != 1)
      continue;
    const auto found = std::ranges::find(other.names, one.names[i]);
    const auto j = static_cast<std::size_t>(found - other.names.begin());
    if (j >= other.gradients.size() || one.gradients[i] == other.gradients[j]) continue;
    if (one.hashes[i] == other.hashes[j]) {
      fail_as_different(
          str_cat(ranks, ": ", one.about[i], "; compared by ", both_sides_text(op, a, b)));
      return false;
    }
    warn_once(str_cat(one.names[i], " differs between the ranks of ", title(),
                      ", and so does its gradient, which nothing sums: each rank trains its own; "
                      "varies(parameter, mesh, dim) says so, without this warning"));
  }
  return true;
}

// Whether `rank` and rank 0, whose calls agree, issue equal collectives in the same order.
bool LocalGroup::in_order(CollectiveOp& op, int rank) {
  const Entry& its = entry(op, rank);
  const std::string swapped =
      swaps_.look(op.sequence, its.print.call, rank, entry(op, 0).args, its.args);
  if (swapped.empty()) return true;
  fail_as_different(str_cat("ranks disagree on collective #", op.sequence, " of ", title(), ": ",
                            both_sides_text(op, 0, rank), swapped));
  return false;
}

// The ranks' programs differ: ends the whole run.
void LocalGroup::fail_as_different(const std::string& text) {
  poison(text);
  registry_->poison(text);
}

}  // namespace coshard
