// The transfer of a job: arriving, claiming units, finishing, giving up.
#include <exception>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"
#include "runtime/comm/local/let_others_run.h"
#include "runtime/comm/local/progress_threads.h"
#include "runtime/comm/local/take.h"
#include "runtime/comm/local/units.h"
#include "runtime/coro/fault_switch.h"

namespace coshard {
namespace {

Entry& entry(const Job& job, int rank) { return job.entries[static_cast<std::size_t>(rank)]; }

std::atomic<Pair>& pair_state(const Job& job, int ranks, int source, int target) {
  return job.pairs[static_cast<std::size_t>(source * ranks + target)];
}

// What `done` counts to. The pairs of an all_gather may all be done before its last rank has
// checked the job, which therefore counts as one more.
std::uint32_t units_to_finish(const Job& job, int ranks, CollectiveKind kind) {
  return kind == CollectiveKind::AllGather ? static_cast<std::uint32_t>(ranks * ranks) + 1
                                           : job.units;
}

}  // namespace

void LocalGroup::arrive(Job& job, int rank, Collective&& collective, Print print, bool timed) {
  if (timed) job.timed.store(true, std::memory_order_relaxed);
  Entry& mine = entry(job, rank);
  const bool prepares = collective.after != nullptr;
  if (collective.complete) job.completes.store(true, std::memory_order_relaxed);
  mine.args = std::move(collective);
  mine.print = print;
  if (prepares) {
    job.unprepared.fetch_add(1);
    mine.stage.store(Stage::Issued);
    ring(job.has_dependents);  // whoever waits may have a share to do
    offer(job);
  }
  if (prepares ? prepare(job, rank) == Prepared::Last : raise_arrived(job, rank)) arm(job, rank);
}

// The caller holds a reference to it.
void LocalGroup::offer(Job& job) {
  if (registry_->progress != nullptr) registry_->progress->offer(shared_from_this(), job);
}

// True for the last one to come, when all agree.
bool LocalGroup::raise_arrived(Job& job, int rank) {
  entry(job, rank).stage.store(Stage::Arrived);
  if (part_sleepers_.load() > 0) wake();
  if (job.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return false;
  for (int r = 0; r < size(); ++r)  // rank 0 too: what it sends to itself it has to receive
    if (!checked(job, 0, r)) return false;
  return true;
}

// Over: what the send buffer of `rank` waits for; else whether a share of it was done.
Look LocalGroup::push_before(Job& job, int rank) {
  WorkState& before = *entry(job, rank).args.after;
  try {
    const Look look = before.push();
    if (look != Look::Over) {
      if (link_ != nullptr) note_not_before(job, rank);
      return look;
    }
    if (const std::string failure = before.failure(); !failure.empty())
      poison(cat(side_text(job, rank), ": what it needs failed: ", failure));
  } catch (const std::exception& error) {
    poison(cat(side_text(job, rank), ": its data could not be prepared: ", error.what()));
  }
  return Look::Over;
}

// Who sleeps has to know it too. Sequentially consistent: a sleeper is seen here, or sees the time.
void LocalGroup::note_not_before(Job& job, int rank) {
  Entry& its = entry(job, rank);
  const std::int64_t known = its.args.after->not_before(-1);
  if (known != 0 && its.not_before_ns.exchange(known) != known) ring(job.has_dependents);
}

// All who may wait for a job or message, or help it.
void LocalGroup::ring(const std::atomic<bool>& has_dependents) {
  wake();
  if (registry_->progress != nullptr) registry_->progress->ring();
  if (has_dependents.load()) registry_->wake();
}

std::int64_t LocalGroup::not_before(const Job& job) const {
  if (job.armed.load()) return job.passage.end;
  const std::int64_t now = LinkQueue::now();
  std::int64_t first = 0;
  for (int r = 0; r < size(); ++r) {
    if (!entry(job, r).prepares()) continue;
    const std::int64_t known = entry(job, r).not_before_ns.load();
    if (known > now && (first == 0 || known < first)) first = known;
  }
  return first;
}

// Arrives for `rank` if what it waits for is over.
LocalGroup::Prepared LocalGroup::prepare(Job& job, int rank) {
  Entry& its = entry(job, rank);
  if (!take(its.stage, Stage::Issued, Stage::Preparing, its.wanted)) return Prepared::Nothing;
  const Look look = push_before(job, rank);
  if (look != Look::Over) {
    its.stage.store(Stage::Issued);
    if (its.wanted.exchange(false)) ring(job.has_dependents);
    return look == Look::Moved ? Prepared::Some : Prepared::Nothing;
  }
  its.args.after.reset();
  job.unprepared.fetch_sub(1);
  return raise_arrived(job, rank) ? Prepared::Last : Prepared::Some;
}

bool LocalGroup::prepare_some(Job& job) {
  if (job.unprepared.load() == 0) return false;
  bool moved = false;
  for (int r = 0; r < size() && !moved; ++r) {
    if (!entry(job, r).prepares()) continue;
    const Prepared prepared = prepare(job, r);
    moved = prepared != Prepared::Nothing;
    if (prepared == Prepared::Last) arm(job, r);
  }
  return moved;
}

void LocalGroup::arm(Job& job, int rank) {
  if (job.device != nullptr) return queue_on_devices(job, rank);
  const Collective& mine = entry(job, rank).args;
  plan_units(job, size());
  const CollectiveKind kind = mine.kind;  // before the job can be over
  const bool at_once = does_at_once() && is_one_shot(mine, size(), rank);
  if (link_ != nullptr) job.passage = link_->pass(job);
  if (at_once && kind != CollectiveKind::AllGather) job.next.store(job.units);
  job.armed.store(true);
  if (!at_once) {
    ring(job.has_dependents);
    offer(job);
  }
  if (kind == CollectiveKind::AllGather) {
    while (at_once && help(job)) {
    }
    finish_units(job, 1, kind);
  } else if (at_once) {
    for (std::uint32_t unit = 0; unit < job.units && !poisoned(); ++unit) run(job, unit);
    finish_units(job, job.units, kind);
  }
}

bool LocalGroup::does_at_once() const { return registry_->clock == nullptr; }

bool LocalGroup::may_go_on() const {
  return registry_->clock == nullptr || registry_->clock->go_on();
}

// Between claiming a share and doing it.
bool LocalGroup::pause() {
  if (registry_->clock == nullptr || registry_->clock->pause()) return true;
  poison("the simulation was given up");
  return false;
}

bool LocalGroup::help(Message& message) {
  if (!message.matched() || !may_go_on()) return false;
  std::string failure;
  const bool moved = message.help(failure);
  if (message.wanted.exchange(false) || moved) ring(message.has_dependents);
  if (!failure.empty())
    poison(cat("message #", message.number, " of ", title(), place_text(message.send),
               ": what it sends failed: ", failure));
  return moved;
}

// A unit that fails ends the job on all ranks.
void LocalGroup::run(Job& job, std::uint32_t unit) {
  if (!pause()) return;
  try {
    run_unit(job, size(), unit);
  } catch (const std::exception& error) {
    poison(cat("collective #", job.sequence, " of ", title(), " failed: ", error.what()));
  }
}

std::string LocalGroup::side_text(const Job& job, int rank) const {
  return call_text(entry(job, rank).args, size(), members_[static_cast<std::size_t>(rank)]);
}

// What `rank` did before the collective that its peers did otherwise.
std::string LocalGroup::noted_text(const Job& job, int rank) const {
  const Noted& last = entry(job, rank).args.last_noted;
  const int member = members_[static_cast<std::size_t>(rank)];
  if (last.what.empty()) return cat("; rank ", member, " did neither before");
  return cat("; rank ", member, " last ", last.what, ' ', last.value, ' ', last.of_what, ' ',
             last.of);
}

// Compares two ranks that have arrived; poisons the group when they disagree.
bool LocalGroup::checked(Job& job, int a, int b) {
  const Entry& one = entry(job, a);
  const Entry& other = entry(job, b);
  bool agree = one.print.call == other.print.call && one.args.noted == other.args.noted &&
               (one.args.branch == other.args.branch || has(Fault::BranchIsNotCompared)) &&
               (one.print.given_up == other.print.given_up || has(Fault::GivenUpIsNotCompared));
  if (agree && one.args.kind == CollectiveKind::AllToAll) {
    for (int r = 0; r <= b && agree; ++r) {
      agree = flat_counts_agree(entry(job, r).args, r, other.args, b) &&
              flat_counts_agree(other.args, b, entry(job, r).args, r);
      if (!agree) a = r;
    }
  }
  if (agree) return true;
  std::string text = cat("ranks disagree on collective #", job.sequence, " of ", title(), ": ",
                         side_text(job, a), ", ", side_text(job, b));
  if (one.print.given_up != other.print.given_up) {
    const std::scoped_lock lock(cause_mutex_);
    for (const int r : {a, b})
      if (const std::string& gave_up = given_up_[static_cast<std::size_t>(r)]; !gave_up.empty())
        text += cat("; rank ", members_[static_cast<std::size_t>(r)], " gave up ", gave_up);
  }
  if (one.args.noted != other.args.noted)
    for (const int r : {a, b}) text += noted_text(job, r);
  poison(text);
  registry_->poison(text);  // the program is not the same on all ranks: nothing goes on
  return false;
}

bool LocalGroup::help(Job& job) {
  if (job.unprepared.load(std::memory_order_relaxed) > 0 && prepare_some(job)) return true;
  if (job.completing.load() && complete_some(job)) return true;
  if (!job.armed.load() || job.next.load(std::memory_order_relaxed) >= job.units) return false;
  if (!may_go_on()) return false;
  const std::uint32_t unit = job.next.fetch_add(1);
  if (unit >= job.units) return false;
  const CollectiveKind kind = job.entries[0].args.kind;
  if (kind == CollectiveKind::AllGather) {
    const int pair = static_cast<int>(unit);
    try_pair(job, pair / size(), pair % size(), true);
    return true;
  }
  if (!poisoned()) run(job, unit);
  finish_units(job, 1, kind);
  return true;
}

bool LocalGroup::help_part(Job& job, int source, int target) {
  if (pair_state(job, size(), source, target).load(std::memory_order_relaxed) != Pair::Todo)
    return false;
  if (job.unprepared.load(std::memory_order_relaxed) > 0 && prepare_some(job)) return true;
  if (!entry(job, source).arrived() || !entry(job, target).issued()) return false;
  return checked(job, target, source) && may_go_on() && try_pair(job, source, target, true);
}

bool LocalGroup::try_pair(Job& job, int source, int target, bool copy) {
  std::atomic<Pair>& state = pair_state(job, size(), source, target);
  Pair expected = Pair::Todo;
  if (state.load(std::memory_order_relaxed) != expected) return false;
  if (!state.compare_exchange_strong(expected, Pair::Taken)) return false;
  if (copy && pause()) copy_pair(job, size(), source, target);
  state.store(Pair::Done);
  if (part_sleepers_.load() > 0) wake();
  finish_units(job, 1, CollectiveKind::AllGather);
  return true;
}

bool LocalGroup::part_done(const Job& job, int source, int target) const {
  return pair_state(job, size(), source, target).load() == Pair::Done;
}

void LocalGroup::finish_units(Job& job, std::uint32_t count, CollectiveKind kind) {
  // The target is read first: as soon as the count is in, somebody else may finish the job.
  const std::uint32_t target = units_to_finish(job, size(), kind);
  const bool completes = job.completes.load(std::memory_order_relaxed);
  if (job.done.fetch_add(count, std::memory_order_acq_rel) + count != target) return;
  if (!completes) return finish(job);
  job.completing.store(true);
  ring(job.has_dependents);
  while (complete_some(job)) {
  }
}

// What follows the transfer on one rank's side.
bool LocalGroup::complete_some(Job& job) {
  const auto ranks = static_cast<std::uint32_t>(size());
  if (job.next_completion.load(std::memory_order_relaxed) >= ranks) return false;
  const std::uint32_t rank = job.next_completion.fetch_add(1);
  if (rank >= ranks) return false;
  std::function<void()> complete = std::exchange(job.entries[rank].args.complete, nullptr);
  try {
    if (complete && !poisoned()) complete();
  } catch (const std::exception& error) {
    poison(cat("collective #", job.sequence, " of ", title(), " failed: ", error.what()));
  }
  complete = nullptr;
  if (job.completions.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) finish(job);
  return true;
}

void LocalGroup::finish(Job& job) {
  if (job.timed.load(std::memory_order_relaxed))
    job.over_ns.store(now_ns(), std::memory_order_relaxed);
  for (int r = 0; r < size(); ++r) {
    entry(job, r).args.keep_send.reset();
    entry(job, r).args.keep_recv.reset();
  }
  job.over.store(true);
  const bool dependents = job.has_dependents.load();
  if (has(Fault::NoWakeUpAfterAJob)) return;
  wake();
  if (dependents) registry_->wake();
}

// Nobody prepares, or still prepares, this rank's data.
void LocalGroup::stop_preparing(Job& job, int rank) {
  Entry& its = entry(job, rank);
  for (Stage seen = its.stage.load(); seen == Stage::Issued || seen == Stage::Preparing;
       seen = its.stage.load()) {
    if (seen == Stage::Issued) prepare(job, rank);
    if (its.stage.load() == Stage::Issued) {  // what it waits for is not over: nobody will do it
      if (its.stage.compare_exchange_strong(seen, Stage::None)) return;
    } else {
      let_others_run();
    }
  }
}

void LocalGroup::abandon(Job& job, int rank) {
  stop_preparing(job, rank);
  if (job.device != nullptr) {  // nobody queues it after the poison, or still does
    const std::scoped_lock lock(devices_.queueing());
    return;
  }
  if (entry(job, rank).args.kind == CollectiveKind::AllGather) {
    for (int r = 0; r < size(); ++r) {
      try_pair(job, r, rank, false);
      try_pair(job, rank, r, false);
      while (!part_done(job, r, rank) || !part_done(job, rank, r)) let_others_run();
    }
  } else {
    // Whoever arms it later sees the poison before it touches a buffer.
    if (!job.armed.load()) return;
    const std::uint32_t claimed = job.next.exchange(job.units);
    if (claimed < job.units) finish_units(job, job.units - claimed, entry(job, rank).args.kind);
  }
  if (entry(job, rank).args.kind == CollectiveKind::AllGather && !job.completing.load()) return;
  while (!job.over.load(std::memory_order_acquire))
    if (!job.completing.load() || !complete_some(job)) let_others_run();
}

}  // namespace coshard
