#include "runtime/comm/local/announcements.h"

#include <algorithm>
#include <utility>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"

namespace coshard {
namespace {

// How long a difference waits for the list of a launch.
constexpr std::int64_t kListNs = 500'000'000;
constexpr std::int64_t kBetweenLooksNs = 1'000'000;
constexpr std::size_t kMostPrints = 4096;  // of a launch, in a question

std::int64_t rank_clock() { return RankContext::current().parker().now(); }

// The ranks, those of a process after one another.
std::vector<int> ring_of(const LocalGroup& group) {
  std::vector<int> ring;
  for (int first = 0; first < group.size(); ++first)
    for (int r = first; r < group.size(); ++r)
      if (group.remote()->together(group.members()[static_cast<std::size_t>(first)],
                                   group.members()[static_cast<std::size_t>(r)]) &&
          std::ranges::find(ring, r) == ring.end())
        ring.push_back(r);
  return ring;
}

}  // namespace

Announcements::Announcements(LocalGroup& group)
    : group_(group), own_(group.members().size()), known_(group.members().size()) {
  const std::vector<int> ring = ring_of(group);
  for (std::size_t i = 0; i < ring.size(); ++i) {
    if (!group.is_here(ring[i])) continue;
    Own& its = own_[static_cast<std::size_t>(ring[i])].emplace();
    its.before = ring[(i + ring.size() - 1) % ring.size()];
    its.after = ring[(i + 1) % ring.size()];
  }
}

const Announcements::Side* Announcements::kept(int rank, std::uint64_t number) const {
  const Own& its = own(rank);
  const std::uint64_t first = its.issued - its.kept.size();
  if (number < first || number >= its.issued) return nullptr;
  return &its.kept[static_cast<std::size_t>(number - first)];
}

void Announcements::note_issue(int rank, CollectiveKind kind, std::uint64_t count,
                               std::int64_t at_ns) {
  known(rank).issued = std::max(known(rank).issued, count);
  RankState& state = group_.state(rank);
  state.kind.store(kind, std::memory_order_relaxed);
  state.issued_ns.store(at_ns, std::memory_order_relaxed);
  state.issued.store(count, std::memory_order_relaxed);
}

// With the lock, as are compare, differ and take.
std::string Announcements::difference(std::uint64_t number, int a, Side& one, int b, Side& other) {
  if (compared_ == nullptr) compared_ = std::make_unique<CollectiveOp>(group_.size());
  CollectiveOp& op = *compared_;
  op.sequence = number;
  const auto swap_in = [&op](int rank, Side& side, Stage stage) {
    std::swap(entry(op, rank).args, side.args);
    std::swap(entry(op, rank).print, side.print);
    entry(op, rank).stage.store(stage, std::memory_order_relaxed);
  };
  swap_in(a, one, Stage::Arrived), swap_in(b, other, Stage::Arrived);
  std::string text = group_.agreement().difference(op, std::min(a, b), std::max(a, b));
  if (text.empty()) text = group_.agreement().swap(op, b, a);
  swap_in(a, one, Stage::None), swap_in(b, other, Stage::None);
  return text;
}

void Announcements::differ(int rank, std::string text, const Side& mine, const Announced& theirs,
                           Outcome& outcome) {
  if (mine.args.launched == nullptr || !is_launch(theirs.args) || group_.is_here(theirs.rank)) {
    outcome.difference = std::move(text);
    return;
  }
  std::vector<std::uint64_t> prints = fingerprints(*mine.args.launched, group_.size());
  prints.resize(std::min(prints.size(), kMostPrints));
  own(rank).difference = Difference{std::move(text), theirs.number, rank_clock()};
  outcome.said.emplace_back(
      Asked{group_.key(), theirs.number, rank, theirs.rank, std::move(prints)});
}

void Announcements::compare(int rank, Outcome& outcome) {
  Own& its = own(rank);
  while (!its.difference && outcome.difference.empty() && !its.ahead.empty()) {
    Announced& theirs = its.ahead.front();
    Side* mine = kept(rank, theirs.number);
    if (mine == nullptr) return;
    Side other{std::move(theirs.args), theirs.print};
    std::string text = difference(theirs.number, theirs.rank, other, rank, *mine);
    theirs.args = std::move(other.args);
    if (!text.empty()) return differ(rank, std::move(text), *mine, theirs, outcome);
    mine->args.replicas = nullptr;
    its.ahead.pop_front();
    if (++its.compared % kPerAcknowledgement == 0)
      outcome.said.emplace_back(Acknowledged{group_.key(), its.compared, rank, its.before});
  }
}

void Announcements::act(const Outcome& outcome) {
  for (const Announcement& one : outcome.said) {
    const int to = std::visit([](const auto& said) { return said.to; }, one);
    if (group_.is_here(to))
      heard(one);
    else
      group_.remote()->tell(group_, to, one);
  }
  (void)group_.is_none(outcome.difference);
  group_.wake();
}

// The counts of a flat all_to_all match in pairs, also of ranks that are no neighbours. Whoever
// hears this before it issues drops it: the other one then hears of its own.
void Announcements::tell_counts(int rank, std::uint64_t number, const Collective& args, Print print,
                                Outcome& outcome) {
  for (int r = 0; r < group_.size(); ++r) {
    if (r == rank || r == own(rank).before || r == own(rank).after) continue;
    Answered counts{group_.key(), number, rank, r, number + 1, args.kind, 0, location_text(args)};
    counts.known = true;
    counts.print = print;
    counts.args = args;
    outcome.said.emplace_back(std::move(counts));
  }
}

void Announcements::issue(int rank, Collective&& args, Print print) {
  args.send = nullptr, args.recv = nullptr;
  args.keep_send = args.keep_recv = nullptr;
  args.after = nullptr, args.complete = nullptr;
  Outcome outcome;
  Announced said{group_.key(), 0, rank, own(rank).after, print, std::move(args)};
  {
    const std::scoped_lock lock(mutex_);
    Own& its = own(rank);
    said.number = its.issued++;
    its.issued_ns = rank_clock();
    note_issue(rank, said.args.kind, its.issued, its.issued_ns);
    its.kept.push_back({said.args, print});
    if (its.kept.size() > kKept) its.kept.pop_front();
    for (const Asked& asked : std::exchange(its.asked, {})) {
      if (asked.number < its.issued)
        take(asked, outcome);
      else
        its.asked.push_back(asked);
    }
    compare(rank, outcome);
    if (said.args.send_counts != nullptr) tell_counts(rank, said.number, said.args, print, outcome);
  }
  outcome.said.insert(outcome.said.begin(), std::move(said));
  act(outcome);
}

std::optional<std::uint64_t> Announcements::awaited(int rank) const {
  const std::scoped_lock lock(mutex_);
  const Own& its = own(rank);
  if (its.issued >= its.acknowledged + kMostUnacknowledged)
    return its.acknowledged + kPerAcknowledgement - 1;  // with which its successor acknowledges
  if (its.issued >= its.compared + kKept) return its.issued - kKept;
  return std::nullopt;
}

Collective Announcements::issued(int rank, std::uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  const Side* side = kept(rank, number);
  return side != nullptr ? side->args : Collective();
}

bool Announcements::is_compared(int rank, std::uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  return own(rank).compared > number;
}

bool Announcements::has_issued(int rank, std::uint64_t number) const {
  const std::scoped_lock lock(mutex_);
  return known(rank).issued > number;
}

int Announcements::lost(int rank, std::uint64_t number, bool for_room) const {
  for (int r = 0; r < group_.size(); ++r) {
    // What it acknowledged was heard before it left.
    if (for_room && r == own(rank).after && group_.state(r).left.load()) return r;
    // Of another rank it may not be known what it issued before it left: its successor knows.
    if (r != own(rank).before && !group_.is_here(r)) continue;
    // In this order: after `left`, a rank issues nothing more.
    if (group_.state(r).left.load() && !has_issued(r, number)) return r;
  }
  return -1;
}

std::int64_t Announcements::ask(int rank, std::uint64_t number) {
  Outcome outcome;
  {
    const std::scoped_lock lock(mutex_);
    for (int r = 0; r < group_.size(); ++r)
      if (known(r).issued <= number && !group_.is_here(r))
        outcome.said.emplace_back(Asked{group_.key(), number, rank, r, {}});
  }
  const std::int64_t now = rank_clock();
  act(outcome);
  return now;
}

bool Announcements::misses_any(std::uint64_t number, std::int64_t asked_ns,
                               std::int64_t patience_ns) const {
  const bool waits = rank_clock() - asked_ns < patience_ns;
  bool missing = false;
  const std::scoped_lock lock(mutex_);
  for (int r = 0; r < group_.size(); ++r) {
    if (known(r).issued > number) continue;
    missing = true;
    if (waits && !group_.is_here(r) && known(r).answered_ns < asked_ns) return false;
  }
  return missing;
}

std::string Announcements::missing_text(std::uint64_t number) const {
  std::string arrived, missing;
  const std::scoped_lock lock(mutex_);
  for (int r = 0; r < group_.size(); ++r) {
    if (known(r).issued > number)
      arrived += str_cat(arrived.empty() ? "" : ",", group_.members()[static_cast<std::size_t>(r)]);
    else
      missing += str_cat(missing.empty() ? "" : ", ", group_.rank_text(r), known(r).place,
                         group_.state(r).left.load()                     ? ", has left"
                         : group_.is_here(r) || known(r).answered_ns > 0 ? ""
                                                                         : ", does not answer");
  }
  return str_cat("arrived: ", arrived.empty() ? "none" : arrived,
                 "; missing: ", missing.empty() ? "none" : missing);
}

void Announcements::look() {
  const std::int64_t now = rank_clock();
  Outcome outcome;
  {
    const std::scoped_lock lock(mutex_);
    if (now - looked_ns_ < kBetweenLooksNs) return;
    looked_ns_ = now;
    for (auto& its : own_)
      if (its && its->difference && now - its->difference->since_ns > kListNs)
        outcome.difference = its->difference->text;
  }
  if (!outcome.difference.empty()) act(outcome);
  (void)group_.remote()->drive();
}

void Announcements::heard(Announcement said) {
  Outcome outcome;
  {
    const std::scoped_lock lock(mutex_);
    std::visit([&](auto& one) { take(one, outcome); }, said);
  }
  act(outcome);
}

void Announcements::take(Announced& said, Outcome& outcome) {
  note_issue(said.rank, said.args.kind, said.number + 1, rank_clock());
  const int to = said.to;
  own(to).ahead.push_back(std::move(said));
  compare(to, outcome);
}

void Announcements::take(const Acknowledged& said, Outcome&) {
  own(said.to).acknowledged = std::max(own(said.to).acknowledged, said.count);
}

void Announcements::take(const Asked& said, Outcome& outcome) {
  Own& its = own(said.to);
  if (said.number >= its.issued) its.asked.push_back(said);
  Answered answer{group_.key(), said.number, said.to, said.rank, its.issued};
  if (!its.kept.empty()) {
    const Collective& last = its.kept.back().args;
    answer.kind = last.kind;
    answer.age_ns = rank_clock() - its.issued_ns;
    answer.place = location_text(last);
  }
  if (const Side* side = kept(said.to, said.number)) {
    answer.known = true;
    answer.print = side->print;
    answer.args = side->args;
    if (const auto& list = side->args.launched; list != nullptr && !said.prints.empty()) {
      const std::vector<std::uint64_t> own_prints = fingerprints(*list, group_.size());
      const auto at = std::ranges::mismatch(own_prints, said.prints).in1 - own_prints.begin();
      answer.part = at;
      answer.known = static_cast<std::size_t>(at) < list->size();
      if (answer.known) answer.args = (*list)[static_cast<std::size_t>(at)];
    }
  }
  outcome.said.emplace_back(std::move(answer));
}

void Announcements::take(Answered& said, Outcome& outcome) {
  const std::int64_t now = rank_clock();
  if (said.count >= known(said.rank).issued)
    note_issue(said.rank, said.kind, said.count, now - said.age_ns);
  known(said.rank).answered_ns = now;
  known(said.rank).place = said.place;
  Side* mine = kept(said.to, said.number);
  if (mine == nullptr) return;
  if (said.part >= 0) {
    if (!own(said.to).difference) return;
    const auto at = static_cast<std::size_t>(said.part);
    const auto& list = *mine->args.launched;
    outcome.difference = own(said.to).difference->text;
    if (at < kMostPrints)
      outcome.difference +=
          group_.agreement().part_text(at, said.rank, said.known ? &said.args : nullptr, said.to,
                                       at < list.size() ? &list[at] : nullptr);
  } else if (said.known) {
    Side other{std::move(said.args), said.print};
    outcome.difference = difference(said.number, said.rank, other, said.to, *mine);
  }
}

}  // namespace coshard
