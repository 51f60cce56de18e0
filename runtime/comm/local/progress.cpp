// The transfer of a job: arriving, claiming units, finishing, giving up.
#include <sched.h>

#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"
#include "runtime/comm/local/units.h"
#include "runtime/error.h"

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

bool LocalGroup::enter(Job& job, int rank, Collective&& collective, std::uint64_t fingerprint) {
  Entry& mine = entry(job, rank);
  mine.args = std::move(collective);
  mine.fingerprint = fingerprint;
  mine.arrived.store(true);
  if (part_sleepers_.load() > 0) wake();
  if (job.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return false;
  for (int r = 1; r < size(); ++r)
    if (!checked(job, 0, r)) return false;
  return true;
}

void LocalGroup::arrive(Job& job, int rank, Collective&& collective, std::uint64_t fingerprint,
                        bool timed) {
  if (timed) job.timed.store(true, std::memory_order_relaxed);
  if (!enter(job, rank, std::move(collective), fingerprint)) return;
  if (job.device != nullptr) {
    poison(cat("rank ", members_[static_cast<std::size_t>(rank)], " of ", title(),
               " is on the cpu, others are on devices that queue their work"));
    return;
  }
  const Collective& mine = entry(job, rank).args;
  plan_units(job, size());
  const CollectiveKind kind = mine.kind;  // before the job can be over
  const bool at_once = is_one_shot(mine, size(), rank);
  if (at_once && kind != CollectiveKind::AllGather) job.next.store(job.units);
  job.armed.store(true);
  if (!at_once) wake();
  if (kind == CollectiveKind::AllGather) {
    while (at_once && help(job)) {
    }
    finish_units(job, 1, kind);
  } else if (at_once) {
    for (std::uint32_t unit = 0; unit < job.units && !poisoned(); ++unit)
      run_unit(job, size(), unit);
    finish_units(job, job.units, kind);
  }
}

// Compares two ranks that have arrived; poisons the group when they disagree.
bool LocalGroup::checked(Job& job, int a, int b) {
  const Entry& one = entry(job, a);
  const Entry& other = entry(job, b);
  bool agree = one.fingerprint == other.fingerprint;
  if (agree && one.args.kind == CollectiveKind::AllToAll) {
    for (int r = 0; r <= b && agree; ++r) {
      agree = flat_counts_agree(entry(job, r).args, r, other.args, b) &&
              flat_counts_agree(other.args, b, entry(job, r).args, r);
      if (!agree) a = r;
    }
  }
  if (agree) return true;
  const auto side = [&](int rank) {
    const Collective& args = entry(job, rank).args;
    const std::string label = args.label.empty() ? "" : cat(" (", args.label, ")");
    return cat("rank ", members_[static_cast<std::size_t>(rank)], " calls ", describe(args, size()),
               label, " at ", place(args.where));
  };
  poison(cat("ranks disagree on collective #", job.sequence, " of ", title(), ": ", side(a), ", ",
             side(b)));
  return false;
}

bool LocalGroup::help(Job& job) {
  if (!job.armed.load() || job.next.load(std::memory_order_relaxed) >= job.units) return false;
  const std::uint32_t unit = job.next.fetch_add(1);
  if (unit >= job.units) return false;
  const CollectiveKind kind = job.entries[0].args.kind;
  if (kind == CollectiveKind::AllGather) {
    const int pair = static_cast<int>(unit);
    try_pair(job, pair / size(), pair % size(), true);
    return true;
  }
  if (!poisoned()) run_unit(job, size(), unit);
  finish_units(job, 1, kind);
  return true;
}

bool LocalGroup::help_part(Job& job, int source, int target) {
  if (pair_state(job, size(), source, target).load(std::memory_order_relaxed) != Pair::Todo)
    return false;
  if (!entry(job, source).arrived.load() || !entry(job, target).arrived.load()) return false;
  return checked(job, target, source) && try_pair(job, source, target, true);
}

bool LocalGroup::try_pair(Job& job, int source, int target, bool copy) {
  std::atomic<Pair>& state = pair_state(job, size(), source, target);
  Pair expected = Pair::Todo;
  if (state.load(std::memory_order_relaxed) != expected) return false;
  if (!state.compare_exchange_strong(expected, Pair::Taken)) return false;
  if (copy) copy_pair(job, size(), source, target);
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
  if (job.done.fetch_add(count, std::memory_order_acq_rel) + count == target) finish(job);
}

void LocalGroup::finish(Job& job) {
  for (int r = 0; r < size(); ++r) {
    entry(job, r).args.keep_send.reset();
    entry(job, r).args.keep_recv.reset();
  }
  if (job.timed.load(std::memory_order_relaxed))
    job.over_ns.store(now_ns(), std::memory_order_relaxed);
  job.over.store(true);
  wake();
}

void LocalGroup::abandon(Job& job, int rank) {
  if (entry(job, rank).args.kind == CollectiveKind::AllGather) {
    for (int r = 0; r < size(); ++r) {
      try_pair(job, r, rank, false);
      try_pair(job, rank, r, false);
      while (!part_done(job, r, rank) || !part_done(job, rank, r)) sched_yield();
    }
    return;
  }
  if (!job.armed.load())
    return;  // whoever arms it later sees the poison before it touches a buffer
  const std::uint32_t claimed = job.next.exchange(job.units);
  if (claimed < job.units) finish_units(job, job.units - claimed, entry(job, rank).args.kind);
  while (!job.over.load(std::memory_order_acquire)) sched_yield();
}

}  // namespace coshard
