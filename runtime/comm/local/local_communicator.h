#pragma once
// The communicator of one rank among threads of one process. A collective is a shared op: every
// rank stores its arguments, and once all have, waiting ranks do the transfer, also for peers that
// are still computing. Used on the rank's thread; kept alive by its work handles.
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include "runtime/comm/collective_info.h"
#include "runtime/comm/local/group.h"

namespace coshard {

class LocalCommunicator final : public Communicator,
                                public std::enable_shared_from_this<LocalCommunicator> {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank);
  ~LocalCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  std::string_view name() const override { return group_->name(); }
  bool gathers_by_shards() const override { return true; }
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) override;
  void poison(const std::string& cause) override { group_->poison(cause); }
  std::uint64_t issued() const override { return issued_; }
  std::uint64_t order_hash() const override { return order_hash_; }
  void make_room() override;  // for what is announced
  void set_timeout(std::int64_t ns) override { timeout_ns_ = ns; }
  void observe(ObserverSlot slot) override { slot_ = std::move(slot); }

  // Before the first issue: collectives are between devices that queue their work; `device` is this
  // rank's.
  void use(std::shared_ptr<Device> device);

  // For the work handles.
  LocalGroup& group() const { return *group_; }
  const std::shared_ptr<LocalGroup>& shared_group() const { return group_; }
  const std::shared_ptr<Device>& device() const { return device_; }  // null: on the cpu
  int world_rank() const { return group_->members()[static_cast<std::size_t>(rank_)]; }
  std::int64_t timeout_ns() const { return timeout_ns_; }
  Observer* observer() const { return slot_ ? *slot_ : nullptr; }
  // Does a chunk of any collective of this rank in flight, or makes progress in other processes'
  // messages; false: nothing to do.
  bool help_any() { return help_own() || group_->drive(); }
  bool help(Message& message);
  // The await of a collective was given up: this rank's later collectives carry that in their
  // Print.
  void note_given_up(const CollectiveInfo& awaited);
  // Releases collectives that are over.
  void retire();
  // After the poison: returns when no peer touches this rank's buffers any more.
  void abandon();

 private:
  std::shared_ptr<WorkState> start(Collective collective) override;
  std::shared_ptr<WorkState> issue_message(Collective collective);
  std::shared_ptr<WorkState> announce(Collective collective);
  DeviceSide device_side(Collective& collective);

  // Notifies the observer, if any; returns whether there is one.
  template <class WorkType>
  bool tell_issue(WorkType& work, const Collective& collective, std::uint64_t number) {
    Observer* watching = observer();
    if (watching == nullptr || collective.unobserved) return false;
    work.watch(event_of(collective, number));
    watching->issued(work.event(), rank_now_ns());
    return true;
  }
  // Takes the next number on the communicator.
  std::uint64_t take_number(const Collective& collective, std::uint64_t print);
  CommEvent event_of(const Collective& collective, std::uint64_t sequence);
  void note_issue(CollectiveKind kind);
  bool help_own();
  void help_when_much_is_in_flight();

  struct InFlight {
    CollectiveOp* op;
    std::int64_t bytes;
  };
  std::shared_ptr<LocalGroup> group_;
  int rank_;
  std::int64_t timeout_ns_ = 0;
  ObserverSlot slot_;
  std::uint64_t issued_ = 0;
  std::uint64_t announced_ = 0;  // of these, to other processes without an op
  std::uint64_t order_hash_ = 0;
  std::uint64_t events_ = 0;
  std::map<std::vector<int>, int> subgroups_;  // by members: how many it has requested
  std::deque<InFlight> in_flight_;             // a reference to each op, in sequence
  std::int64_t bytes_in_flight_ = 0;
  std::uint64_t given_up_ = 0;  // hash of all awaits this rank gave up here, in any order
  std::vector<std::shared_ptr<Message>> messages_;

  // On devices that queue their work.
  std::shared_ptr<Device> device_;  // null: on the cpu
  std::shared_ptr<Stream> stream_, message_stream_;
};

// With the registry's mutex held, or before it is shared.
std::shared_ptr<LocalGroup> make_group(const std::shared_ptr<LocalRegistry>& registry,
                                       std::vector<int> members, std::string name);

}  // namespace coshard
