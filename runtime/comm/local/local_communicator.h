#pragma once
// The communicator of one rank among threads of one process. A collective is a shared job: every
// rank puts its arguments in, and once all have, whoever waits does the transfer, for peers that
// still compute too. Used on the rank's thread; kept alive by its tickets.
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
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
  Ticket issue(Collective collective, CallSite where) override;
  std::shared_ptr<Communicator> subgroup(std::span<const int> ranks, std::string name) override;
  void poison(const std::string& cause) override { group_->poison(cause); }
  std::uint64_t issued() const override { return issued_; }
  std::uint64_t order_hash() const override { return order_hash_; }
  void set_timeout(std::int64_t ns) override { timeout_ns_ = ns; }
  void observe(ObserverSlot slot) override { slot_ = std::move(slot); }

  // Before the first issue: collectives are between devices that queue their work, of which
  // `device` is this rank's.
  void use(std::shared_ptr<Device> device);

  // For the tickets.
  LocalGroup& group() const { return *group_; }
  const std::shared_ptr<LocalGroup>& shared_group() const { return group_; }
  int world_rank() const { return group_->members()[static_cast<std::size_t>(rank_)]; }
  std::int64_t timeout_ns() const { return timeout_ns_; }
  Observer* observer() const { return slot_ ? *slot_ : nullptr; }
  // A unit of any collective of this rank that is in flight.
  bool help_any();
  // Lets go of what is over.
  void retire();
  // After the poison: returns when no peer touches a buffer of this rank any more.
  void abandon();

 private:
  Ticket issue_message(Collective collective);
  // local/device_issue.cpp
  Ticket issue_on_device(Collective collective);
  Ticket issue_message_on_device(Collective collective);
  DeviceSide device_side(Collective& collective, std::shared_ptr<Lane> lane, Kept& kept);
  std::shared_ptr<Lane> message_lane(const Collective& collective);

  // Tells the observer, if there is one; whether there is.
  template <class TicketType>
  bool tell_issue(TicketType& ticket, const Collective& collective, std::uint64_t number) {
    Observer* watching = observer();
    if (watching == nullptr) return false;
    ticket.watch(event_of(collective, number));
    watching->issued(ticket.event(), now_ns());
    return true;
  }
  // Both sides are there: poisons the group when they do not fit.
  bool agree(const Message& message);
  // Takes the next number on the communicator.
  std::uint64_t take_number(CollectiveKind kind, std::uint64_t print);
  CommEvent event_of(const Collective& collective, std::uint64_t sequence);
  void note_issue(CollectiveKind kind);

  std::shared_ptr<LocalGroup> group_;
  int rank_;
  std::int64_t timeout_ns_ = 0;
  ObserverSlot slot_;
  std::uint64_t issued_ = 0;
  std::uint64_t order_hash_ = 0;
  std::uint64_t events_ = 0;
  std::map<std::vector<int>, int> subgroups_;  // how many of these members it has asked for
  std::deque<Job*> in_flight_;                 // a reference each, in sequence
  std::vector<std::shared_ptr<Message>> messages_;

  // On devices that queue their work.
  std::shared_ptr<Device> device_;  // null: on the cpu
  std::shared_ptr<Lane> lane_;
  std::map<std::pair<int, bool>, std::shared_ptr<Lane>> message_lanes_;  // by peer, sending or not
};

// With the registry's mutex held, or before it is shared.
std::shared_ptr<LocalGroup> make_group(const std::shared_ptr<LocalRegistry>& registry,
                                       std::vector<int> members, std::string name);

}  // namespace coshard
