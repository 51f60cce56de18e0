// The transfer of an op: arrival, claiming chunks, completion, abandoning.
#include <exception>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/group.h"
#include "runtime/comm/local/host/chunks.h"
#include "runtime/comm/local/host/progress_threads.h"
#include "runtime/comm/local/let_others_run.h"
#include "runtime/comm/local/take.h"
#include "runtime/coro/fault_switch.h"

namespace coshard {
namespace {

std::atomic<Pair>& pair_state(const CollectiveOp& op, int ranks, int source, int target) {
  return op.pairs[static_cast<std::size_t>(source * ranks + target)];
}

// The final value of `done`. The pairs of an all_gather may all be done before its last rank has
// checked the op, so that check counts as one more.
std::uint32_t chunks_to_finish(const CollectiveOp& op, int ranks, CollectiveKind kind) {
  const std::uint32_t sends = (op.remote_ranks ? 1 : 0) + (op.second_half ? 1 : 0);
  return sends + (kind == CollectiveKind::AllGather ? static_cast<std::uint32_t>(ranks * ranks) + 1
                                                    : op.chunks);
}

}  // namespace

void LocalGroup::arrive(CollectiveOp& op, int rank, Collective&& collective, Print print,
                        bool timed) {
  if (timed) op.timed.store(true, std::memory_order_relaxed);
  Entry& mine = entry(op, rank);
  const bool prepares = collective.after != nullptr;
  if (collective.complete) op.completes.store(true, std::memory_order_relaxed);
  mine.args = std::move(collective);
  mine.print = print;
  if (remote_ != nullptr) remote_->issued(*this, op, rank);
  if (prepares) {
    op.unprepared.fetch_add(1);
    mine.stage.store(Stage::Issued);
    ring(op);  // waiters may have work to do
    offer(op);
  }
  if (prepares ? prepare(op, rank) == Prepared::Last : raise_arrived(op, rank)) arm(op, rank);
  if (remote_ == nullptr) return;
  remote_->receive(*this, op);
  if (!op.over.load()) offer(op);
}

// True for the last rank to arrive, if all agree.
bool LocalGroup::raise_arrived(CollectiveOp& op, int rank) {
  entry(op, rank).stage.store(Stage::Arrived);
  if (part_sleepers_.load() > 0) wake();
  if (remote_ != nullptr && is_here(rank)) {
    const bool later = is_in_place(entry(op, rank).args);
    // After the poison the buffer may hold anything, and the receiving processes may not know yet.
    if (!poisoned()) remote_->arrived(*this, op, rank);
    if (later) return false;
  }
  return count_arrival(op);
}

bool LocalGroup::count_arrival(CollectiveOp& op) {
  if (op.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < size()) return false;
  for (int r = 0; r < size(); ++r)  // rank 0 too: its counts to itself must match
    if (!checked(op, 0, r) || !in_order(op, r)) return false;
  return true;
}

// Advances what the send buffer of `rank` depends on. Over: it is complete, or has failed.
Look LocalGroup::push_before(CollectiveOp& op, int rank) {
  WorkState& before = *entry(op, rank).args.after;
  try {
    const Look look = before.push();
    if (look != Look::Over) {
      if (link_ != nullptr) note_not_before(op, rank);
      return look;
    }
    if (const std::string failure = before.failure(); !failure.empty())
      poison(str_cat(side_text(op, rank), ": what it depends on failed: ", failure));
  } catch (const std::exception& error) {
    poison(str_cat(side_text(op, rank), ": preparing its send buffer failed: ", error.what()));
  }
  return Look::Over;
}

// Sleepers need the time too. Sequentially consistent: a sleeper is seen here, or sees the time.
void LocalGroup::note_not_before(CollectiveOp& op, int rank) {
  Entry& its = entry(op, rank);
  const std::int64_t known = its.args.after->not_before(-1);
  if (known != 0 && its.not_before_ns.exchange(known) != known) ring(op);
}

// Rings all that may wait for an op or message, or help with it.
void LocalGroup::ring(const std::atomic<bool>& has_dependents) {
  wake();
  if (registry_->progress != nullptr) registry_->progress->ring();
  if (has_dependents.load()) registry_->wake();
}

// With ranks in other processes, progress threads poll and need no ring.
void LocalGroup::ring(const CollectiveOp& op) {
  if (remote_ == nullptr) return ring(op.has_dependents);
  wake();
  if (op.has_dependents.load()) registry_->wake();
}

std::int64_t LocalGroup::not_before(const CollectiveOp& op) const {
  if (op.armed.load()) return op.passage.end;
  const std::int64_t now = LinkQueue::now();
  std::int64_t first = 0;
  for (int r = 0; r < size(); ++r) {
    if (!entry(op, r).prepares()) continue;
    const std::int64_t known = entry(op, r).not_before_ns.load();
    if (known > now && (first == 0 || known < first)) first = known;
  }
  return first;
}

// Arrives on behalf of `rank` if what it depends on is over.
LocalGroup::Prepared LocalGroup::prepare(CollectiveOp& op, int rank) {
  Entry& its = entry(op, rank);
  if (!take(its.stage, Stage::Issued, Stage::Preparing, its.wanted)) return Prepared::Nothing;
  const Look look = push_before(op, rank);
  if (look != Look::Over) {
    its.stage.store(Stage::Issued);
    if (its.wanted.exchange(false)) ring(op);
    return look == Look::Moved ? Prepared::Some : Prepared::Nothing;
  }
  its.args.after.reset();
  op.unprepared.fetch_sub(1);
  return raise_arrived(op, rank) ? Prepared::Last : Prepared::Some;
}

bool LocalGroup::prepare_some(CollectiveOp& op) {
  if (op.unprepared.load() == 0) return false;
  bool moved = false;
  for (int r = 0; r < size() && !moved; ++r) {
    if (!entry(op, r).prepares()) continue;
    const Prepared prepared = prepare(op, r);
    moved = prepared != Prepared::Nothing;
    if (prepared == Prepared::Last) arm(op, r);
  }
  return moved;
}

void LocalGroup::arm(CollectiveOp& op, int rank) {
  if (op.device != nullptr) return queue_on_devices(op, rank);
  const Collective& mine = entry(op, rank).args;
  plan_chunks(op, size());
  if (remote_ != nullptr && remote_->armed(*this, op)) op.gates.fetch_add(1);
  const CollectiveKind kind = mine.kind;  // read before the op can be over
  const bool at_once = does_at_once() && is_one_shot(mine, size(), rank);
  if (link_ != nullptr) op.passage = link_->pass(op);
  if (at_once && kind != CollectiveKind::AllGather) op.next.store(op.chunks);
  op.armed.store(true);
  if (!at_once) {
    ring(op);
    offer(op);
  }
  if (kind == CollectiveKind::AllGather) {
    while (at_once && help(op)) {
    }
    finish_chunks(op, 1, kind);
  } else if (at_once) {
    for (std::uint32_t chunk = 0; chunk < op.chunks && !poisoned(); ++chunk) run(op, chunk);
    finish_chunks(op, op.chunks, kind);
  }
  if (remote_ != nullptr) sent(op, -1);
}

bool LocalGroup::does_at_once() const { return registry_->clock == nullptr; }

bool LocalGroup::may_go_on() const {
  return registry_->clock == nullptr || registry_->clock->go_on();
}

// Between claiming a share and doing it.
bool LocalGroup::pause() {
  if (registry_->clock == nullptr || registry_->clock->pause()) return true;
  poison("the simulation was abandoned");
  return false;
}

// A chunk that fails ends the op on all ranks.
void LocalGroup::run(CollectiveOp& op, std::uint32_t chunk) {
  if (!pause()) return;
  try {
    run_chunk(op, size(), chunk);
  } catch (const std::exception& error) {
    poison(str_cat("collective #", op.sequence, " of ", title(), " failed: ", error.what()));
  }
}

bool LocalGroup::help(CollectiveOp& op) {
  if (op.unprepared.load(std::memory_order_relaxed) > 0 && prepare_some(op)) return true;
  if (op.completing.load() && complete_some(op)) return true;
  if (!op.armed.load() || op.next.load(std::memory_order_relaxed) >= op.chunks) return false;
  if (!may_go_on()) return false;
  const std::uint32_t chunk = op.next.fetch_add(1);
  if (chunk >= op.chunks) return false;
  const CollectiveKind kind = op.entries[0].args.kind;
  if (kind == CollectiveKind::AllGather) {
    const int pair = static_cast<int>(chunk);
    try_pair(op, pair / size(), pair % size(), true);
    return true;
  }
  if (!poisoned()) run(op, chunk);
  finish_chunks(op, 1, kind);
  return true;
}

bool LocalGroup::help_part(CollectiveOp& op, int source, int target) {
  if (pair_state(op, size(), source, target).load(std::memory_order_relaxed) != Pair::Todo)
    return false;
  if (op.unprepared.load(std::memory_order_relaxed) > 0 && prepare_some(op)) return true;
  if (!entry(op, source).arrived() || !entry(op, target).issued()) return false;
  return checked(op, target, source) && may_go_on() && try_pair(op, source, target, true);
}

bool LocalGroup::try_pair(CollectiveOp& op, int source, int target, bool copy) {
  std::atomic<Pair>& state = pair_state(op, size(), source, target);
  Pair expected = Pair::Todo;
  if (state.load(std::memory_order_relaxed) != expected) return false;
  if (!state.compare_exchange_strong(expected, Pair::Taken)) return false;
  if (copy && pause()) copy_pair(op, size(), source, target);
  state.store(Pair::Done);
  if (part_sleepers_.load() > 0) wake();
  finish_chunks(op, 1, CollectiveKind::AllGather);
  return true;
}

bool LocalGroup::part_done(const CollectiveOp& op, int source, int target) const {
  return pair_state(op, size(), source, target).load() == Pair::Done;
}

void LocalGroup::finish_chunks(CollectiveOp& op, std::uint32_t count, CollectiveKind kind) {
  // Read the target first: as soon as the count is added, another thread may finish the op.
  const std::uint32_t target = chunks_to_finish(op, size(), kind);
  const bool completes = op.completes.load(std::memory_order_relaxed);
  const std::uint32_t first_half = op.second_half ? op.chunks : 0;
  const std::uint32_t done = op.done.fetch_add(count, std::memory_order_acq_rel) + count;
  if (first_half != 0 && done == first_half) {
    if (!poisoned()) remote_->summed(*this, op);
    return finish_chunks(op, 1, kind);  // abandon() waits for this: nothing more begins
  }
  if (done != target) return;
  if (!completes) return finish(op);
  op.completing.store(true);
  ring(op);
  while (complete_some(op)) {
  }
}

// Runs one rank's completion callback after the transfer.
bool LocalGroup::complete_some(CollectiveOp& op) {
  const auto ranks = static_cast<std::uint32_t>(size());
  if (op.next_completion.load(std::memory_order_relaxed) >= ranks) return false;
  const std::uint32_t rank = op.next_completion.fetch_add(1);
  if (rank >= ranks) return false;
  std::function<void()> complete = std::exchange(op.entries[rank].args.complete, nullptr);
  try {
    if (complete && !poisoned()) complete();
  } catch (const std::exception& error) {
    poison(str_cat("collective #", op.sequence, " of ", title(), " failed: ", error.what()));
  }
  complete = nullptr;
  if (op.completions.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) finish(op);
  return true;
}

void LocalGroup::finish(CollectiveOp& op) {
  if (op.timed.load(std::memory_order_relaxed))
    op.over_ns.store(rank_now_ns(), std::memory_order_relaxed);
  for (int r = 0; r < size(); ++r) {
    entry(op, r).args.keep_send.reset();
    entry(op, r).args.keep_recv.reset();
  }
  if (remote_ != nullptr && registry_->progress != nullptr) registry_->progress->forget(op);
  op.over.store(true);
  const bool dependents = op.has_dependents.load();
  if (remote_ != nullptr)  // the remote ranks' references; not before their last use
    for (int r = 0; r < size(); ++r)
      if (!is_here(r)) release(op);
  if (has(Fault::NoWakeUpAfterAnOp)) return;
  wake();
  if (dependents) registry_->wake();
}

// Returns when no thread is preparing, or will prepare, this rank's data.
void LocalGroup::stop_preparing(CollectiveOp& op, int rank) {
  Entry& its = entry(op, rank);
  for (Stage seen = its.stage.load(); seen == Stage::Issued || seen == Stage::Preparing;
       seen = its.stage.load()) {
    if (seen == Stage::Issued) prepare(op, rank);
    if (its.stage.load() == Stage::Issued) {  // its dependency is not over: cancel the preparation
      if (its.stage.compare_exchange_strong(seen, Stage::None)) return;
    } else {
      let_others_run();
    }
  }
}

void LocalGroup::abandon(CollectiveOp& op, int rank) {
  stop_preparing(op, rank);
  if (op.device != nullptr) {  // wait out a thread that is still queueing it
    const std::scoped_lock lock(devices_.queueing());
    return;
  }
  if (entry(op, rank).args.kind == CollectiveKind::AllGather) {
    for (int r = 0; r < size(); ++r) {
      try_pair(op, r, rank, false);
      try_pair(op, rank, r, false);
      while (!part_done(op, r, rank) || !part_done(op, rank, r)) let_others_run();
    }
  } else {
    // A thread that arms it later sees the poison before it touches a buffer.
    if (!op.armed.load()) return;
    const std::uint32_t claimed = op.next.exchange(op.chunks);
    if (claimed < op.chunks) finish_chunks(op, op.chunks - claimed, entry(op, rank).args.kind);
  }
  if (entry(op, rank).args.kind == CollectiveKind::AllGather && !op.completing.load()) return;
  while (!op.over.load(std::memory_order_acquire)) {
    // Sends in flight keep their buffers alive: no need to wait for them.
    const std::uint32_t own = op.chunks + (op.second_half ? 1 : 0);
    if (remote_ != nullptr && op.gates.load() > 0 && op.done.load() >= own) return;
    if (!op.completing.load() || !complete_some(op)) let_others_run();
  }
}

}  // namespace coshard
