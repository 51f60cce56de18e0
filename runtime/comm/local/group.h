#pragma once
// State shared by the ranks of one communicator: open ops, the mailbox of send and recv, the ranks'
// progress, the poison, and the sleepers. Owned by its ranks' communicators; thread-safe.
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <coshard/runtime/coro/parker.h>
#include <coshard/runtime/spin_lock.h>
#include "runtime/comm/collective_info.h"
#include "runtime/comm/local/announcements.h"
#include "runtime/comm/local/device/device_group.h"
#include "runtime/comm/local/host/agreement.h"
#include "runtime/comm/local/host/collective_op.h"
#include "runtime/comm/local/link_queue.h"
#include "runtime/comm/local/p2p/message.h"
#include "runtime/comm/local/remote_ranks.h"
#include "runtime/comm/local/transfer_clock.h"

namespace coshard {

class DeadlockDetector;
class ProgressThreads;
struct LocalRegistry;

// A rank's state as seen by peers, for error messages. Written by the rank; relaxed, except `left`.
struct alignas(64) RankState {
  std::atomic<std::uint64_t> issued{0};
  std::atomic<CollectiveKind> kind{};      // of the last one issued
  std::atomic<std::int64_t> issued_ns{0};  // when; steady clock to a few ms
  std::atomic<bool> left{false};           // release: orders all that the rank issued before it
};

class LocalGroup : public std::enable_shared_from_this<LocalGroup> {
 public:
  // `members`: the world rank of each rank of the group, which error messages name.
  LocalGroup(std::shared_ptr<LocalRegistry> registry, std::vector<int> members, std::string name);
  ~LocalGroup();
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }
  const std::shared_ptr<LocalRegistry>& registry() const { return registry_; }
  std::uint64_t id() const { return id_; }
  // The same in every process that has ranks of this group.
  std::uint64_t key() const { return key_; }
  void set_key(std::uint64_t key) { key_ = key; }
  // Null: all its ranks are threads of this process.
  RemoteRanks* remote() const { return remote_; }
  bool is_here(int rank) const {
    return remote_ == nullptr || remote_->here(members_[static_cast<std::size_t>(rank)]);
  }
  bool drive();  // called by a waiting rank
  RankState& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }
  DeviceGroup& devices() { return devices_; }
  Agreement& agreement() { return agreement_; }
  // Of ranks that have announced collectives; only if remote() is not null.
  Announcements& announcements() { return *announcements_; }
  LinkQueue* link() const { return link_.get(); }  // null: nothing is emulated

  // The op of collective `sequence`, holding one reference for the joining rank. Ranks join in
  // sequence.
  CollectiveOp& join(std::uint64_t sequence, CollectiveKind kind);
  // Stores the arguments of `rank`. The last rank to arrive arms the op if all agree, and runs a
  // small one at once; on devices it queues the work of all ranks. If the send buffer depends on a
  // collective still in flight, any helping rank arrives on this rank's behalf.
  void arrive(CollectiveOp& op, int rank, Collective&& args, Print print, bool timed);
  // Does one chunk of an armed op, one pair of an all_gather, or a step of its preparation or
  // completion; false if there was nothing to claim.
  bool help(CollectiveOp& op);
  bool help(Message& message);
  bool help_part(CollectiveOp& op, int source, int target);
  // Whether the last rank to arrive runs small ops at once.
  bool does_at_once() const;
  bool part_done(const CollectiveOp& op, int source, int target) const;
  // With links: the earliest known time at which a waiter's wait may be over; 0: unknown.
  std::int64_t not_before(const CollectiveOp& op) const;
  // For RemoteRanks: a remote rank has issued; all its data for ranks here have arrived; a rank
  // here has sent all that remote ranks need.
  void announce(CollectiveOp& op, int rank, Collective&& args, Print print);
  void received(CollectiveOp& op, int rank);
  void sent(CollectiveOp& op, int rank);
  bool agrees(const CollectiveOp& op, int here, int elsewhere) {
    return is_none(agreement_.difference(op, here, elsewhere));
  }
  // Ends the whole run if there is a difference.
  bool is_none(const std::string& difference);
  // After the poison: returns once no thread touches the buffers of `rank` for this op.
  void abandon(CollectiveOp& op, int rank);

  // Posts the side of a message of `rank`, which is here; `both`: the other side is posted too.
  std::shared_ptr<Message> post(const Collective& args, int rank, bool& both);
  // For RemoteRanks: the same for a remote rank.
  void post_elsewhere(const Collective& args, int rank, int tag);
  // Compares the two posted sides; poisons the group if they do not match.
  bool agree(const Message& message);
  // On the CPU, once both sides are posted and agree.
  void transfer(const std::shared_ptr<Message>& message);
  // Queues a message on devices, for its last side, with the queueing mutex held. A failure poisons
  // the group and is thrown.
  void queue_on_devices(Message& message, int rank);

  // The first cause is kept; false if there was one already.
  bool poison(const std::string& cause);
  // The local part of poison(): waits fail from now on.
  bool mark_poisoned(const std::string& cause);
  // Poison from another process: remote ranks already know of it.
  void poisoned_elsewhere(const std::string& cause);
  bool poisoned() const noexcept { return poisoned_.load(); }
  std::string cause() const;
  // The ThreadGroup is closing: drops dependencies that never completed, since they hold this
  // group.
  void forget_unprepared();
  // `rank` will issue nothing more: peers that need it fail at once.
  void leave(int rank);

  // "0,1,3"; "2 (last issued #39 all_reduce on tp[4] 1.7 s ago)"; "tp[4]"
  std::string arrived_text(const CollectiveOp& op) const;
  std::string missing_text(const CollectiveOp& op) const;
  std::string rank_text(int rank) const;
  std::string title() const;
  std::string lost_text(const CollectiveInfo& awaited, int lost) const;
  PeerFailure poisoned(const CollectiveInfo& awaited) const;
  LastIssued last_issued(int rank) const;
  // A rank that has left without issuing the op; -1: none.
  int lost(const CollectiveOp& op) const;

  // For the error message when ranks disagree. `key`: which await, alike on all ranks.
  void note_given_up(int rank, std::uint64_t key, const CollectiveInfo& awaited);

  // Rings all listeners, after something they may wait for was stored (sequentially consistent, as
  // is the waiter's check: one of the two sees the other). Costs one load if there are no
  // sleepers.
  void wake() {
    if (sleepers_.load() > 0) notify();
  }
  void wake_waiters(const std::atomic<bool>& has_dependents);
  void wake_waiters(const CollectiveOp& op);
  // From now on `parker` is woken; the caller checks the awaited state after this and before it
  // parks.
  void subscribe(Parker& parker, bool for_part);
  void unsubscribe(Parker& parker, bool for_part) noexcept;

 private:
  CollectiveOp& free_op();
  void begin(CollectiveOp& op, std::uint64_t sequence);  // for its first rank
  bool may_go_on() const;
  bool pause();
  enum class Prepared { Nothing, Some, Last };  // done; Last: and the last one to arrive
  Poll poll_before(CollectiveOp& op, int rank);
  void note_not_before(CollectiveOp& op, int rank);
  Prepared prepare(CollectiveOp& op, int rank);
  bool prepare_some(CollectiveOp& op);
  void stop_preparing(CollectiveOp& op, int rank);
  bool raise_arrived(CollectiveOp& op, int rank);
  bool count_arrival(CollectiveOp& op);
  void arm(CollectiveOp& op, int rank);
  void queue_on_devices(CollectiveOp& op, int rank);
  void queue_or_poison(DeviceOp& op, std::size_t side, const CollectiveInfo& what);
  void run(CollectiveOp& op, std::uint32_t chunk);
  bool complete_some(CollectiveOp& op);
  void offer(CollectiveOp& op);
  void offer(const std::shared_ptr<Message>& message);
  void finish_chunks(CollectiveOp& op, std::uint32_t count, CollectiveKind kind);
  void finish(CollectiveOp& op);
  bool try_pair(CollectiveOp& op, int source, int target, bool copy);
  void notify();

  std::shared_ptr<LocalRegistry> registry_;
  std::vector<int> members_;
  std::string name_;
  std::uint64_t id_, key_ = 0;
  RemoteRanks* remote_ = nullptr;
  std::unique_ptr<RankState[]> states_;
  Mailbox mailbox_;
  DeviceGroup devices_;
  std::unique_ptr<LinkQueue> link_;
  Agreement agreement_;
  std::unique_ptr<Announcements> announcements_;

  alignas(64) SpinLock ops_lock_;  // guards the four below
  std::vector<std::unique_ptr<CollectiveOp>> ops_;
  std::size_t next_op_ = 0;         // where to look for a free op
  std::deque<CollectiveOp*> open_;  // ops that some rank has not joined yet, in sequence
  std::uint64_t first_open_ = 0;

  // Read in every wait and hardly ever written, so kept apart.
  alignas(64) std::atomic<bool> poisoned_{false};  // false -> true, with cause_ set before
  std::atomic<int> sleepers_{0};
  std::atomic<int> part_sleepers_{0};  // sleepers that the arrival of one part may help

  alignas(64) mutable std::mutex cause_mutex_;
  std::string cause_;
  std::mutex sleep_mutex_;  // guards parkers_
  std::vector<Parker*> parkers_;
};

// The groups of one run, so that a failure can reach them all.
struct LocalRegistry {
  std::mutex mutex;
  std::vector<std::weak_ptr<LocalGroup>> groups;
  std::shared_ptr<RemoteRanks> remote;  // for all groups; null: none. Set before the first
  TransferClock* clock = nullptr;       // a simulation's; set before the ranks begin
  std::string cause;                    // poison of the whole run; inherited by later groups
  std::set<int> left;                   // world ranks that have ended; inherited by later groups
  std::optional<Link> link;             // for all groups; set before the first
  std::shared_ptr<ProgressThreads> progress;  // null: none; set before the first group
  // Subgroups still missing members, keyed by parent, world ranks, and the number of earlier
  // subgroups with these; removed by their last member.
  struct Pending {
    std::shared_ptr<LocalGroup> group;
    int missing = 0;
  };
  std::map<std::tuple<std::uint64_t, std::vector<int>, int>, Pending> pending;
  inline static std::atomic<std::uint64_t> next_id{1};  // of groups, over all worlds
  // If set, only the sleepers of this deadlock detector use these groups; null: others may, too.
  // Set before the ranks start.
  const DeadlockDetector* deadlock_detector = nullptr;
  void wake();  // wakes all listeners of all groups; not with the mutex held
  // Not with the mutex held.
  void poison(const std::string& cause);
};

}  // namespace coshard
