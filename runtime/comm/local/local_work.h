#pragma once
// The work handles of a LocalCommunicator: waiting helps with the transfer, spins briefly, then
// sleeps. On devices that queue their work, a wait ends when the op is queued, and the compute
// stream is then ordered after it. Owned by the Work handles of one rank, used on its thread.
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/coro/wait_limit.h>
#include "runtime/comm/collective_info.h"
#include "runtime/comm/local/local_communicator.h"

namespace coshard {

class LocalWork : public WorkState {
 public:
  ~LocalWork() override;
  Poll poll(Poller by, int part) final;
  void wait(int part) final;
  void check(std::int64_t waited_ns) final;
  bool subscribe(Parker& parker) final;
  void unsubscribe(Parker& parker) noexcept final;
  void cancel(const std::string& cause) final;
  void note(WorkEvent event) final;
  WorkInfo info(int part) const final {
    return {.any_thread = true, .timeout_ns = timeout_ns(), .not_before = not_before(part)};
  }
  std::string describe() const final { return awaited_.text(communicator_->group().title()); }
  std::string failure() const final;

  // On devices, before the op can be queued: adds this rank's side, and keeps its buffers.
  void bring(std::shared_ptr<DeviceOp> op, std::size_t place, DeviceSide side,
             const Collective& args);

  void watch(const CommEvent& event) { event_ = event; }
  const CommEvent& event() const { return event_; }

 protected:
  LocalWork(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
            std::uint64_t number);

  virtual int parts() const { return 1; }
  // On devices: queued, not necessarily done.
  virtual bool complete() const = 0;
  virtual bool help() = 0;       // does a share of the transfer; false: nothing to do now
  virtual int lost() const = 0;  // a rank this waits for that has left; -1: none
  virtual bool misses(int rank) const = 0;         // the rank has not issued its part
  virtual bool lacks_data_of(int rank) const = 0;  // it has, in another process
  // Past the deadline: nobody is missing, or it is not known yet who.
  virtual bool rest_is_here() = 0;
  // Whether a rank may be missing, so that check() has to look.
  virtual bool may_miss(std::int64_t /*waited_ns*/) { return !complete(); }
  virtual void check_before(std::int64_t /*waited_ns*/) {}  // checks its dependency; see check()
  virtual std::string missing_text() const = 0;             // "arrived: 0; missing: 1 (...)"
  // When its data were complete: when they had moved and, with links, its passage had ended.
  std::int64_t over_ns(std::int64_t moved_ns, const Passage& passage) const;
  virtual std::int64_t over_ns() const = 0;

  virtual std::int64_t link_ns(int part) const = 0;  // not_before(), with links

  virtual bool part_complete(int) const { return complete(); }
  // Of a query: of a part, or of all.
  virtual bool is_there(int part);
  virtual void wait_part(int /*part*/) { wait_for_all(); }
  virtual void mark_has_dependents() = 0;
  virtual bool by_parts() const { return false; }  // the arrival of a part alone may help

  template <class Done, class Help>
  void block(int part, const Done& done, const Help& help);
  void check_part(int part) const;
  void wait_for_all();
  void begin_wait();
  void end_wait();
  const LinkQueue* link() const { return communicator_->group().link(); }  // null: none
  void settle();
  bool settled() const { return settled_; }
  // Orders later work on the compute stream after the end of the op, or of a part of it.
  void order_after(const std::shared_ptr<Event>& end, int part = -1);

  std::shared_ptr<LocalCommunicator> communicator_;
  CollectiveInfo awaited_;
  std::shared_ptr<WorkState> after_;  // what its send buffer depends on, until it is settled
  // On devices that queue their work; null on the cpu, and when the group was poisoned before.
  std::shared_ptr<DeviceOp> device_op_;

  // By the limit where it is awaited, else where it was issued, else the communicator's.
  std::int64_t timeout_ns() const {
    const std::optional<std::int64_t> here = WaitLimit::here();
    return here ? *here : limit_.value_or(communicator_->timeout_ns());
  }

 private:
  std::int64_t not_before(int part) const;
  void note_abandoned();
  void dependent_awaited();
  void abandon();
  [[noreturn]] void fail_poisoned();
  [[noreturn]] void fail_timeout(std::int64_t waited_ns);
  std::vector<int> missing_ranks() const;
  void fail_if_lost();
  std::string late_text(std::int64_t waited_ns) const {
    return awaited_.late_text(communicator_->group().title(), waited_ns, missing_text());
  }
  bool is_overdue(std::int64_t waited_ns);
  bool data_move() const;
  void fail_if_missing_is_here() const;
  WaiterState* waiter_state() const;

  const std::optional<std::int64_t> limit_ = WaitLimit::here();  // where it was issued

  // Held while a blocking wait sleeps.
  class Subscription final : public WaitInPlace {
   public:
    Subscription(LocalWork& work, RankContext& rank) : work_(work), rank_(rank) {
      work_.subscribe(rank_.parker());
      rank_.in_place = this;
    }
    ~Subscription() {
      rank_.in_place = nullptr;
      work_.unsubscribe(rank_.parker());
    }
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;
    std::string text() const override { return work_.describe(); }

   private:
    LocalWork& work_;
    RankContext& rank_;
  };

  CommEvent event_;                 // id 0: the issue was not observed
  std::int64_t begin_wait_ns_ = 0;  // since when the rank stands still for it; 0: it does not
  bool settled_ = false, looked_after_ = false;
  std::atomic<bool> told_late_{false};  // warned: past the deadline, data still moving
  std::size_t side_ = 0;                // index of this rank in device_op_
  Kept kept_;                           // until the compute stream is ordered after the op
};

class OpWork final : public LocalWork {
 public:
  // op: null when the communicator was poisoned before the issue.
  OpWork(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
         std::uint64_t number, CollectiveOp* op);

 private:
  int parts() const override;
  bool is_there(int part) override;
  void wait_part(int part) override;
  void mark_has_dependents() override {
    if (op_ != nullptr) op_->has_dependents.store(true);
  }
  bool complete() const override {
    return op_ != nullptr && op_->over.load() &&
           (link() == nullptr || LinkQueue::now() >= op_->passage.end);
  }
  bool help() override;
  int lost() const override { return communicator_->group().lost(*op_); }
  bool misses(int rank) const override { return op_ != nullptr && !entry(*op_, rank).issued(); }
  bool lacks_data_of(int rank) const override {
    return op_ != nullptr && entry(*op_, rank).announced();
  }
  bool rest_is_here() override {
    return op_ != nullptr && device_op_ == nullptr && op_->armed.load() && !op_->over.load() &&
           (op_->done.load() < op_->chunks || op_->completing.load());
  }
  void check_before(std::int64_t waited_ns) override;
  std::string missing_text() const override;
  std::int64_t over_ns() const override;
  std::int64_t link_ns(int part) const override;
  bool part_on_link(int part) const;
  bool part_complete(int part) const override;
  bool by_parts() const override { return early_ || chained_ || waits_for_part_; }
  bool help_part(int part);

  CollectiveOp* op_;
  std::optional<OpReference> used_;
  bool early_;    // an all_gather large enough to start before all ranks arrive
  bool chained_;  // its send buffer depends on another work
  bool waits_for_part_ = false;
};

// A collective that is only announced (announcements.h): over once the rank's predecessor has
// issued it. A query of it, and its deadline, are about all ranks.
class AnnouncedWork final : public LocalWork {
 public:
  AnnouncedWork(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
                std::uint64_t number)
      : LocalWork(std::move(communicator), collective, number) {}
  // Returns once the rank may issue its next one.
  void wait_for_room();

 private:
  Announcements& all() const { return communicator_->group().announcements(); }
  bool is_there(int) override {
    return communicator_->group().poisoned() || !all().misses_any(awaited_.number, 0, 0);
  }
  bool complete() const override { return all().is_compared(rank(), awaited_.number); }
  bool help() override { return communicator_->group().drive(); }
  int lost() const override { return all().lost(rank(), awaited_.number, for_room_); }
  // Of a rank that has left only its successor knows what it issued.
  bool misses(int rank) const override {
    return !all().has_issued(rank, awaited_.number) && !communicator_->group().state(rank).left;
  }
  bool lacks_data_of(int) const override { return false; }
  bool rest_is_here() override {
    return !all().misses_any(awaited_.number, asked_ns_, Announcements::patience_ns(timeout_ns()));
  }
  bool may_miss(std::int64_t waited_ns) override;
  std::string missing_text() const override { return all().missing_text(awaited_.number); }
  void mark_has_dependents() override {}
  std::int64_t over_ns() const override { return 0; }
  std::int64_t link_ns(int) const override { return 0; }
  int rank() const { return communicator_->rank(); }
  std::int64_t asked_ns_ = 0;  // 0: it has not asked the others
  bool for_room_ = false;
};

class MessageWork final : public LocalWork {
 public:
  MessageWork(std::shared_ptr<LocalCommunicator> communicator, const Collective& collective,
              std::shared_ptr<Message> message);

 private:
  void mark_has_dependents() override { message_->has_dependents.store(true); }
  bool complete() const override {
    return message_->over() && (link() == nullptr || LinkQueue::now() >= message_->passage.end);
  }
  bool help() override;
  int lost() const override;
  bool misses(int rank) const override {
    return rank == peer_ && message_->state.load() == MessageState::Half;
  }
  bool lacks_data_of(int rank) const override { return rank == peer_; }
  bool rest_is_here() override { return message_->state.load() == MessageState::Taken; }
  std::string missing_text() const override;
  std::int64_t over_ns() const override;
  std::int64_t link_ns(int part) const override;

  std::shared_ptr<Message> message_;
  int peer_;
};

}  // namespace coshard
