#include "runtime/comm/local/group.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/host/chunks.h"
#include "runtime/comm/local/host/progress_threads.h"
#include "runtime/comm/local/let_others_run.h"
#include "runtime/comm/local/take.h"
#include "runtime/coro/fault_switch.h"

namespace coshard {
LocalGroup::LocalGroup(std::shared_ptr<LocalRegistry> registry, std::vector<int> members,
                       std::string name)
    : registry_(std::move(registry)),
      members_(std::move(members)),
      name_(std::move(name)),
      id_(registry_->next_id.fetch_add(1)),
      states_(std::make_unique<RankState[]>(members_.size())),
      agreement_(members_, title()) {
  const auto elsewhere = [this](int r) { return !registry_->remote->here(r); };
  if (registry_->remote != nullptr && std::ranges::any_of(members_, elsewhere))
    remote_ = registry_->remote.get();
  if (remote_ != nullptr) announcements_ = std::make_unique<Announcements>(*this);
  if (registry_->link && size() > 1) link_ = std::make_unique<LinkQueue>(*registry_->link, size());
}

LocalGroup::~LocalGroup() = default;

CollectiveOp& LocalGroup::free_op() {
  constexpr int kTries = 8;  // a work handle may hold an op for long: skip it
  for (int i = 0; i < kTries && !ops_.empty(); ++i) {
    next_op_ = (next_op_ + 1) % ops_.size();
    if (ops_[next_op_]->references.load(std::memory_order_acquire) == 0) return *ops_[next_op_];
  }
  ops_.push_back(std::make_unique<CollectiveOp>(size()));
  return *ops_.back();
}

void LocalGroup::begin(CollectiveOp& op, std::uint64_t sequence) {
  op.sequence = sequence;
  op.joined = 0;
  op.references.store(size(), std::memory_order_relaxed);
  op.arrived.store(0, std::memory_order_relaxed);
  op.armed.store(false, std::memory_order_relaxed);
  op.next.store(0, std::memory_order_relaxed);
  op.done.store(0, std::memory_order_relaxed);
  op.over.store(false, std::memory_order_relaxed);
  op.timed.store(false, std::memory_order_relaxed);
  op.unprepared.store(0, std::memory_order_relaxed);
  op.has_dependents.store(false, std::memory_order_relaxed);
  op.completes.store(false, std::memory_order_relaxed);
  op.completing.store(false, std::memory_order_relaxed);
  op.next_completion.store(0, std::memory_order_relaxed);
  op.completions.store(0, std::memory_order_relaxed);
  op.has_pairs = false;
  op.second_half = false;
  op.remote_ranks = remote_ != nullptr;
  if (remote_ != nullptr) {
    op.remote = remote_->new_state(*this, op.remote.get());
    for (std::size_t r = 0; r < members_.size(); ++r) op.entries[r].packed.clear();
    int here = 0;
    for (int r = 0; r < size(); ++r) here += is_here(r) ? 1 : 0;
    op.gates.store(here + 1, std::memory_order_relaxed);
  }
  if (link_ != nullptr) {
    op.passage = {};
    for (std::size_t r = 0; r < members_.size(); ++r) op.entries[r].not_before_ns.store(0);
  }
  for (std::size_t r = 0; r < members_.size(); ++r) {
    op.entries[r].stage.store(Stage::None, std::memory_order_relaxed);
    op.entries[r].wanted.store(false, std::memory_order_relaxed);
  }
  if (devices_.used()) {
    if (op.device.use_count() == 1) {
      std::atomic_thread_fence(std::memory_order_acquire);  // after its last observer
      op.device->reset();
    } else {
      op.device = std::make_shared<DeviceOp>(size());
    }
  }
}

CollectiveOp& LocalGroup::join(std::uint64_t sequence, CollectiveKind kind) {
  const std::scoped_lock lock(ops_lock_);
  const auto index = static_cast<std::size_t>(sequence - first_open_);
  if (index == open_.size()) {
    open_.push_back(&free_op());
    begin(*open_.back(), sequence);
  }
  CollectiveOp& op = *open_[index];
  if (kind == CollectiveKind::AllGather && !op.has_pairs) {
    const std::size_t pairs = members_.size() * members_.size();
    if (op.pairs == nullptr) op.pairs = std::make_unique<std::atomic<Pair>[]>(pairs);
    for (std::size_t p = 0; p < pairs; ++p)
      op.pairs[p].store(Pair::Todo, std::memory_order_relaxed);
    op.has_pairs = true;
  }
  if (++op.joined == size()) {  // ranks join in sequence, so this is the front
    open_.pop_front();
    ++first_open_;
  }
  return op;
}

bool LocalGroup::poison(const std::string& cause) {
  if (!mark_poisoned(cause)) return false;
  if (remote_ != nullptr) remote_->poisoned(*this, cause);
  registry_->wake();  // waiters for ops that depend on this group
  return true;
}

bool LocalGroup::drive() {
  if (remote_ == nullptr) return false;
  // Waiting patiently takes real time, which a simulation does not have, and other ranks' turns.
  const bool patient = !RankContext::current().parker().shares_its_thread();
  return patient ? remote_->drive_while_waiting() : remote_->drive();
}

// The caller holds a reference to the op.
void LocalGroup::offer(CollectiveOp& op) {
  if (registry_->progress != nullptr) registry_->progress->offer(shared_from_this(), op);
}

void LocalGroup::offer(const std::shared_ptr<Message>& message) {
  if (registry_->progress != nullptr) registry_->progress->offer(shared_from_this(), message);
}

void LocalGroup::announce(CollectiveOp& op, int rank, Collective&& args, Print print) {
  RankState& its = state(rank);
  its.kind.store(args.kind, std::memory_order_relaxed);
  its.issued_ns.store(RankContext::current().parker().now(), std::memory_order_relaxed);
  its.issued.store(op.sequence + 1, std::memory_order_relaxed);
  Entry& entry = op.entries[static_cast<std::size_t>(rank)];
  entry.args = std::move(args);
  entry.print = print;
  entry.stage.store(Stage::Announced);
  wake_waiters(op);
}

void LocalGroup::received(CollectiveOp& op, int rank) {
  const OpReference used(op);
  if (raise_arrived(op, rank)) arm(op, rank);
  wake_waiters(op);
}

void LocalGroup::sent(CollectiveOp& op, int rank) {
  const OpReference used(op);
  // In place, the result overwrites what was sent, so the rank counts as arrived only now.
  if (rank >= 0 && is_in_place(op.entries[static_cast<std::size_t>(rank)].args) &&
      count_arrival(op))
    arm(op, rank);
  if (op.gates.fetch_sub(1, std::memory_order_acq_rel) == 1)
    finish_chunks(op, 1, op.entries[0].args.kind);  // it is armed: all entries are filled
}

void LocalGroup::poisoned_elsewhere(const std::string& cause) {
  if (mark_poisoned(cause)) registry_->wake();
}

bool LocalGroup::mark_poisoned(const std::string& cause) {
  {
    const std::scoped_lock lock(cause_mutex_);
    if (poisoned_.load()) return false;
    cause_ = cause;
    poisoned_.store(true);
  }
  wake();
  return true;
}

std::string LocalGroup::cause() const {
  const std::scoped_lock lock(cause_mutex_);
  return cause_;
}

void LocalGroup::forget_unprepared() {
  std::vector<std::shared_ptr<WorkState>> dropped;  // destroyed after the unlock
  const std::scoped_lock lock(ops_lock_);
  for (const auto& op : ops_)
    for (std::size_t r = 0; r < members_.size(); ++r) {
      Entry& its = op->entries[r];
      Stage seen = Stage::Issued;
      if (!its.stage.compare_exchange_strong(seen, Stage::Preparing)) continue;
      dropped.push_back(std::move(its.args.after));
      its.stage.store(Stage::None);
    }
}

void LocalGroup::leave(int rank) {
  state(rank).left.store(true);
  wake();
}

int LocalGroup::lost(const CollectiveOp& op) const {
  for (std::size_t r = 0; r < members_.size(); ++r) {
    // In this order: after `left`, a rank issues nothing more.
    if (states_[r].left.load() && !op.entries[r].issued()) return static_cast<int>(r);
  }
  return -1;
}

// Lists the ranks if they are not in ascending order.
std::string LocalGroup::title() const {
  std::string text = str_cat(name_, "[", size(), "]");
  if (std::ranges::is_sorted(members_)) return text;
  for (std::size_t r = 0; r < members_.size(); ++r)
    text += str_cat(r == 0 ? " of ranks " : ",", members_[r]);
  return text;
}

std::string LocalGroup::arrived_text(const CollectiveOp& op) const {
  std::string text;
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (op.entries[r].issued() && !op.entries[r].announced())
      text += str_cat(text.empty() ? "" : ",", members_[r]);
  return text.empty() ? "none" : text;
}

std::string LocalGroup::missing_text(const CollectiveOp& op) const {
  std::string text;
  for (std::size_t r = 0; r < members_.size(); ++r)
    if (!op.entries[r].issued() || op.entries[r].announced())
      text += str_cat(text.empty() ? "" : ", ", op.entries[r].announced() ? "the data of " : "",
                      rank_text(static_cast<int>(r)));
  if (!text.empty()) return text;
  if (!op.remote_ranks || op.remote == nullptr) return "none";
  for (const int r : op.remote->not_summed())
    text += str_cat(text.empty() ? "" : ", ", "the sum of ", rank_text(r));
  for (const int r : op.remote->not_taken())
    text += str_cat(text.empty() ? "" : ", ", rank_text(r), " to take what it is sent");
  return text.empty() ? "none" : text;
}

LastIssued LocalGroup::last_issued(int rank) const {
  const RankState& its = states_[static_cast<std::size_t>(rank)];
  return {its.issued.load(std::memory_order_relaxed), its.kind.load(std::memory_order_relaxed),
          its.issued_ns.load(std::memory_order_relaxed)};
}

std::string LocalGroup::rank_text(int rank) const {
  return str_cat(members_[static_cast<std::size_t>(rank)], " (", last_issued(rank).text(title()),
                 ")");
}

std::string LocalGroup::lost_text(const CollectiveInfo& awaited, int lost) const {
  const auto index = static_cast<std::size_t>(lost);
  return awaited.lost_text(title(), members_[index], states_[index].issued.load());
}

PeerFailure LocalGroup::poisoned(const CollectiveInfo& awaited) const {
  return awaited.poisoned(title(), cause());
}

void LocalGroup::note_given_up(int rank, std::uint64_t key, const CollectiveInfo& awaited) {
  agreement_.note_given_up(rank, key, awaited.number,
                           str_cat(awaited.text(title()), " in branch ", Branch::current().path()));
}

// The ranks' programs differ: ends the whole run.
bool LocalGroup::is_none(const std::string& difference) {
  if (difference.empty()) return true;
  poison(difference);
  registry_->poison(difference);
  return false;
}

void LocalGroup::notify() {
  const std::scoped_lock lock(sleep_mutex_);
  for (Parker* parker : parkers_) parker->unpark();
}

void LocalGroup::subscribe(Parker& parker, bool for_part) {
  {
    const std::scoped_lock lock(sleep_mutex_);
    parkers_.push_back(&parker);
  }
  // After the insertion: a waker that sees the count also finds the parker.
  sleepers_.fetch_add(1);
  if (for_part) part_sleepers_.fetch_add(1);
}

void LocalGroup::unsubscribe(Parker& parker, bool for_part) noexcept {
  if (for_part) part_sleepers_.fetch_sub(1);
  sleepers_.fetch_sub(1);
  const std::scoped_lock lock(sleep_mutex_);
  const auto here = std::ranges::find(parkers_, &parker);
  if (here != parkers_.end()) parkers_.erase(here);
}

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
    wake_waiters(op);  // waiters may have work to do
    offer(op);
  }
  if (prepares ? prepare(op, rank) == Prepared::Last : raise_arrived(op, rank)) arm(op, rank);
  if (remote_ == nullptr) return;
  be_slow(1);
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
    if (!agrees(op, 0, r) || !is_none(agreement_.swap(op, r))) return false;
  return true;
}

// Advances what the send buffer of `rank` depends on. Done: it is complete, or has failed.
Poll LocalGroup::poll_before(CollectiveOp& op, int rank) {
  WorkState& before = *entry(op, rank).args.after;
  try {
    const Poll polled = before.poll(Poller::AnyThread);
    if (polled != Poll::Done) {
      if (link_ != nullptr) note_not_before(op, rank);
      return polled;
    }
    if (const std::string failure = before.failure(); !failure.empty())
      poison(str_cat(agreement_.side_text(op, rank), ": what it depends on failed: ", failure));
  } catch (const std::exception& error) {
    poison(str_cat(agreement_.side_text(op, rank),
                   ": preparing its send buffer failed: ", error.what()));
  }
  return Poll::Done;
}

// Sleepers need the time too. Sequentially consistent: a waiter is seen here, or sees the time.
void LocalGroup::note_not_before(CollectiveOp& op, int rank) {
  Entry& its = entry(op, rank);
  const std::int64_t known = its.args.after->info().not_before;
  if (known != 0 && its.not_before_ns.exchange(known) != known) wake_waiters(op);
}

// Rings all that may wait for an op or message, or help with it.
void LocalGroup::wake_waiters(const std::atomic<bool>& has_dependents) {
  wake();
  if (registry_->progress != nullptr) registry_->progress->wake_all();
  if (has_dependents.load()) registry_->wake();
}

// With ranks in other processes, progress threads poll and need no wake-up.
void LocalGroup::wake_waiters(const CollectiveOp& op) {
  if (remote_ == nullptr) return wake_waiters(op.has_dependents);
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
  const Poll polled = poll_before(op, rank);
  if (polled != Poll::Done) {
    its.stage.store(Stage::Issued);
    if (its.wanted.exchange(false)) wake_waiters(op);
    return polled == Poll::Progressed ? Prepared::Some : Prepared::Nothing;
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
    wake_waiters(op);
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
  return agrees(op, target, source) && may_go_on() && try_pair(op, source, target, true);
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
  wake_waiters(op);
  be_slow(2);
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
      if (!is_here(r)) op.release();
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

std::shared_ptr<Message> LocalGroup::post(const Collective& args, int rank, bool& both) {
  const bool leaves = !is_here(args.root);
  const int tag = leaves ? remote_->posted(*this, args, rank) : 0;
  auto message = mailbox_.post(args, rank, tag, both);
  if (leaves) offer(message);  // the peer may post and wait while all ranks here compute
  return message;
}

void LocalGroup::post_elsewhere(const Collective& args, int rank, int tag) {
  bool both = false;
  const std::shared_ptr<Message> message = mailbox_.post(args, rank, tag, both);
  if (both && agree(*message)) transfer(message);
}

bool LocalGroup::agree(const Message& message) {
  const Collective& send = message.send;
  const Collective& recv = message.recv;
  const bool shaped = send.shape != nullptr && recv.shape != nullptr;
  if (send.dtype == recv.dtype &&
      send_elements(send, size(), 0) == recv_elements(recv, size(), 0) &&
      (!shaped || *send.shape == *recv.shape))
    return true;
  const auto world = [this](int r) { return members_[static_cast<std::size_t>(r)]; };
  poison(str_cat("ranks disagree on message #", message.number, " of ", title(), ": rank ",
                 world(message.source), " calls ", describe(send, size()), location_text(send),
                 ", rank ", world(message.target), " calls ", describe(recv, size()),
                 location_text(recv)));
  return false;
}

void LocalGroup::transfer(const std::shared_ptr<Message>& message) {
  const std::size_t bytes = bytes_of(*message);
  if (link_ != nullptr)
    message->passage = link_->pass_message(message->source, static_cast<std::int64_t>(bytes));
  if (!is_here(message->source) || !is_here(message->target))
    message->carry = remote_->carrier(*this, message);
  Mailbox::match(*message);
  constexpr std::size_t kAtOnce = 64 * 1024;  // above: left to a waiter
  if (does_at_once() && !poisoned() && bytes <= kAtOnce) help(*message);
  if (!message->carry && !message->over()) offer(message);
  wake_waiters(message->has_dependents);
}

bool LocalGroup::help(Message& message) {
  if (!message.matched() || !may_go_on()) return false;
  std::string failure;
  const bool moved = message.help(failure);
  if (message.wanted.exchange(false) || moved) wake_waiters(message.has_dependents);
  if (!failure.empty())
    poison(str_cat("message #", message.number, " of ", title(), location_text(message.send),
                   ": computing what it sends failed: ", failure));
  return moved;
}

// With the queueing mutex held.
void LocalGroup::queue_or_poison(DeviceOp& op, std::size_t side, const CollectiveInfo& what) {
  if (poisoned()) return;
  for (const DeviceSide& its : op.sides)
    if (its.device == nullptr) {
      poison(str_cat(what.text(title()), ": rank ", its.rank,
                     " is not on the same kind of device as ", op.sides[side].device->name()));
      return;
    }
  const std::shared_ptr<Device> own = op.sides[side].device;
  try {
    op.queue(weak_from_this(), what, op.sides[side].timeout_ns);
    own->peers()->make_current();
  } catch (const std::exception& error) {
    poison(str_cat("rank ", what.world_rank, " failed to queue ", what.text(title()), ": ",
                   error.what()));
    throw;
  }
}

void LocalGroup::queue_on_devices(CollectiveOp& op, int rank) {
  const auto mine = static_cast<std::size_t>(rank);
  {
    const std::scoped_lock lock(devices_.queueing());
    queue_or_poison(*op.device, mine,
                    CollectiveInfo(op.entries[mine].args, op.sequence, members_[mine]));
  }
  if (!poisoned()) finish(op);
}

void LocalGroup::queue_on_devices(Message& message, int rank) {
  const bool sends = message.source == rank;
  queue_or_poison(*message.device, sends ? 0 : 1,
                  CollectiveInfo(sends ? message.send : message.recv, message.number,
                                 members_[static_cast<std::size_t>(rank)]));
  if (poisoned()) return;
  message.state.store(MessageState::Over);
  wake_waiters(message.has_dependents);
}

}  // namespace coshard
