#include "runtime/comm/local/group.h"

#include <algorithm>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/local/host/chunks.h"
#include "runtime/comm/local/host/progress_threads.h"

namespace coshard {

LocalGroup::LocalGroup(std::shared_ptr<LocalRegistry> registry, std::vector<int> members,
                       std::string name)
    : registry_(std::move(registry)),
      members_(std::move(members)),
      name_(std::move(name)),
      id_(registry_->next_id.fetch_add(1)),
      states_(std::make_unique<RankState[]>(members_.size())),
      given_up_(members_.size()) {
  const auto elsewhere = [this](int r) { return !registry_->remote->here(r); };
  if (registry_->remote != nullptr && std::ranges::any_of(members_, elsewhere))
    remote_ = registry_->remote.get();
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

CollectiveOp& LocalGroup::join(std::uint64_t sequence, CollectiveKind kind) {
  const std::scoped_lock lock(ops_lock_);
  const auto index = static_cast<std::size_t>(sequence - first_open_);
  if (index == open_.size()) {
    CollectiveOp* fresh = &free_op();
    fresh->sequence = sequence;
    fresh->joined = 0;
    fresh->references.store(size(), std::memory_order_relaxed);
    fresh->arrived.store(0, std::memory_order_relaxed);
    fresh->armed.store(false, std::memory_order_relaxed);
    fresh->next.store(0, std::memory_order_relaxed);
    fresh->done.store(0, std::memory_order_relaxed);
    fresh->over.store(false, std::memory_order_relaxed);
    fresh->timed.store(false, std::memory_order_relaxed);
    fresh->unprepared.store(0, std::memory_order_relaxed);
    fresh->has_dependents.store(false, std::memory_order_relaxed);
    fresh->completes.store(false, std::memory_order_relaxed);
    fresh->completing.store(false, std::memory_order_relaxed);
    fresh->next_completion.store(0, std::memory_order_relaxed);
    fresh->completions.store(0, std::memory_order_relaxed);
    fresh->has_pairs = false;
    fresh->second_half = false;
    fresh->remote_ranks = remote_ != nullptr;
    if (remote_ != nullptr) {
      fresh->remote = remote_->new_state(*this, fresh->remote.get());
      for (std::size_t r = 0; r < members_.size(); ++r) fresh->entries[r].packed.clear();
      int here = 0;
      for (int r = 0; r < size(); ++r) here += is_here(r) ? 1 : 0;
      fresh->gates.store(here + 1, std::memory_order_relaxed);
    }
    if (link_ != nullptr) {
      fresh->passage = {};
      for (std::size_t r = 0; r < members_.size(); ++r) fresh->entries[r].not_before_ns.store(0);
    }
    for (std::size_t r = 0; r < members_.size(); ++r) {
      fresh->entries[r].stage.store(Stage::None, std::memory_order_relaxed);
      fresh->entries[r].wanted.store(false, std::memory_order_relaxed);
    }
    if (devices_.used()) {
      if (fresh->device.use_count() == 1) {
        std::atomic_thread_fence(std::memory_order_acquire);  // after its last observer
        fresh->device->reset();
      } else {
        fresh->device = std::make_shared<DeviceOp>(size());
      }
    }
    open_.push_back(fresh);
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
  ring(op);
}

void LocalGroup::received(CollectiveOp& op, int rank) {
  if (raise_arrived(op, rank)) arm(op, rank);
  ring(op);
}

void LocalGroup::sent(CollectiveOp& op, int rank) {
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
  constexpr std::size_t kMost = 64;
  std::string text = str_cat(awaited.text(title()), " in branch ", Branch::current().path());
  const std::scoped_lock lock(cause_mutex_);
  std::deque<GivenUp>& all = given_up_[static_cast<std::size_t>(rank)];
  all.push_back({key, awaited.number, std::move(text)});
  if (all.size() > kMost) all.pop_front();
}

void LocalGroup::notify() {
  const std::scoped_lock lock(sleep_mutex_);
  for (Parker* parker : listening_) parker->ring();
}

void LocalGroup::listen(Parker& parker, bool for_part) {
  {
    const std::scoped_lock lock(sleep_mutex_);
    listening_.push_back(&parker);
  }
  // After the insertion: a ringer that sees the count also finds the parker.
  sleepers_.fetch_add(1);
  if (for_part) part_sleepers_.fetch_add(1);
}

void LocalGroup::deaf(Parker& parker, bool for_part) noexcept {
  if (for_part) part_sleepers_.fetch_sub(1);
  sleepers_.fetch_sub(1);
  const std::scoped_lock lock(sleep_mutex_);
  const auto here = std::ranges::find(listening_, &parker);
  if (here != listening_.end()) listening_.erase(here);
}

}  // namespace coshard
